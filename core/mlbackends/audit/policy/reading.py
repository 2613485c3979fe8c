"""Reading policy files: one, and those that it extends."""

import os
import stat

from mlbackends.audit.policy.document import Document, PolicyError
from mlbackends.audit.policy.lines import DEEPEST, TooDeep, lines_of
from mlbackends.model.errors import BadInput

LIMIT = 1 << 20
"""No policy is larger, in bytes: a thousand rules have a tenth of it."""


def read(path: str, folder: str = "") -> Document:
    """Read one file. folder: that of the file which the user named, "" where it is this one.

    Raises BadInput where it cannot be read, PolicyError where it is no TOML.
    """
    data = _bytes_of(path, one_line(path))
    return parsed(data, path, folder or os.path.dirname(os.path.realpath(path)))


def parsed(data: bytes, path: str, folder: str) -> Document:
    """Return what a file says, before any of it is looked at."""
    from mlbackends.switches import files

    file = one_line(path)
    if len(data) > LIMIT:
        raise BadInput(f"{file} is larger than {LIMIT >> 20} MiB: that is no policy")
    try:
        # Before tomllib sees it: what is too deep costs that hours, or its stack.
        lines = lines_of(data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace"))
    except TooDeep as deep:
        said = f"{file}:{deep.line}: nested more than {DEEPEST} deep: no policy is"
        raise PolicyError(said) from None
    _, tables = files.parsed(data, file)
    return Document(path, file, folder, tables, lines)


def beside(document: Document, name: str) -> str:
    """Return the path of a file that a policy names, by the policy's own folder.

    It stays in the folder of the policy that the user named, links followed. Raises ValueError with
    what is wrong.
    """
    if os.path.isabs(name) or "\0" in name or "://" in name:
        raise ValueError("must be a path relative to this file")
    path = os.path.join(os.path.dirname(document.path), name)
    real = os.path.realpath(path)
    if not real.startswith(os.path.join(document.folder, "")):
        raise ValueError("must lie in the folder of the policy or below; it leads out of it")
    return path


def regular(path: str) -> str:
    """Return the path of a regular file. Raises BadInput for what is another kind of file."""
    try:
        is_other = not stat.S_ISREG(os.stat(path).st_mode)
    except OSError:  # what reads it will say why
        return path
    if is_other:
        raise BadInput(f"{one_line(path)} cannot be read: it is no regular file")
    return path


def one_line(path: str) -> str:
    """Return a path as it can be shown in a message."""
    text = "".join(each if each.isprintable() else "�" for each in path)
    return text if len(text) <= 300 else f"{text[:300]}..."


def _bytes_of(path: str, shown: str) -> bytes:
    """Return a file, cut where it is too large. A pipe or a device is refused: it may never end."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        is_regular = stat.S_ISREG(os.fstat(handle).st_mode)
        if not is_regular:
            os.close(handle)
            raise BadInput(f"{shown} cannot be read: it is no regular file")
        with os.fdopen(handle, "rb") as file:
            return file.read(LIMIT + 1)
    except OSError as error:
        raise BadInput(f"{shown} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{shown} cannot be read: {error}") from None  # a NUL in the name
