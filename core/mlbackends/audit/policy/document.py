"""A policy file as it was read: its tables, and the line of everything that can be wrong in it."""

from typing import Any, NoReturn

from msgspec import Struct

from mlbackends.audit.policy.lines import Path
from mlbackends.model.audit import Place
from mlbackends.model.errors import BadInput


class PolicyError(BadInput):
    """Something is wrong in a policy file; the message begins with FILE:LINE."""


class Document(Struct, frozen=True):
    """One file. file: as a message shows it. folder: the folder that it may refer to files in."""

    path: str
    file: str
    folder: str
    tables: dict[str, Any]
    lines: dict[Path, int]

    def line(self, path: Path) -> int:
        """Return the line of a key, or of what it would stand in."""
        while path:
            line = self.lines.get(path)
            if line is not None:
                return line
            path = path[:-1]
        return 1

    def place(self, path: Path) -> Place:
        """Return where a key stands."""
        return Place(self.file, self.line(path))

    def wrong(self, path: Path, message: str, hint: str = "") -> NoReturn:
        """Raise PolicyError: the file, the line, the key and what is wrong with it."""
        keys = [part for part in path if isinstance(part, str)]
        key = ".".join(part if _is_plain(part) else repr(part[:80]) for part in keys)
        head = f"{self.file}:{self.line(path)}: "
        raise PolicyError(f"{head}{key}: {message}" if key else f"{head}{message}", hint)


def _is_plain(part: str) -> bool:
    return len(part) <= 80 and part.replace("-", "").replace("_", "").isalnum() and part.isascii()
