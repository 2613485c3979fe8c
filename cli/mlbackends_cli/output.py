"""Where text goes: standard output, or a file that is written whole or not at all."""

import os
import sys

from mlbackends.host.files import standard_output, whole_file
from mlbackends.model.errors import BadInput


def write(text: str | bytes, path: str = "") -> None:
    """Write text to a file, or to standard output where `path` is "" or "-"; bytes as they are.

    Characters that the terminal's encoding lacks are replaced, never an error. Raises BadInput where
    the file cannot be written; what was there before then stays.
    """
    if isinstance(text, str) and text and not text.endswith("\n"):
        text += "\n"
    if path not in ("", "-"):
        _replace(path, text.encode() if isinstance(text, str) else text)
        return
    if sys.stdout is None:  # closed before we were started: nobody reads
        return
    encoding = sys.stdout.encoding or "ascii"
    data = text.encode(encoding, "replace") if isinstance(text, str) else text
    if not hasattr(sys.stdout, "buffer"):
        sys.stdout.write(data.decode(encoding, "replace"))
        return
    with standard_output() as file:
        file.write(data)


def indented(record: object) -> str:
    """Return a record, or what is made of dicts and lists, as JSON to read: two blanks a level."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(record), indent=2).decode()


def refuse_unwritable(*paths: str) -> None:
    """Raise BadInput for a file that plainly cannot be written, before hours are spent on what goes there.

    So also for one that is to be written twice, whose first content would be lost; "-" counts as one.
    """
    seen: set[str] = set()
    for path in paths:
        where = path if path in ("", "-") else os.path.realpath(path)
        if where in seen and (where == "-" or not os.path.exists(where) or os.path.isfile(where)):
            told = "standard output" if where == "-" else path
            raise BadInput(f"two things would be written to {told}", "name a file for each")
        seen.add(where)
        if path in ("", "-"):
            continue
        folder = os.path.dirname(os.path.realpath(path))
        if os.path.isdir(path):
            raise BadInput(f"{path} cannot be written: it is a folder")
        if not os.path.isdir(folder):
            raise BadInput(f"{path} cannot be written: there is no folder {folder}")
        replaced = os.path.isfile(path) or not os.path.exists(path)  # and no device or FIFO
        if replaced and not os.access(folder, os.W_OK):
            raise BadInput(f"{path} cannot be written: nothing may be written in {folder}")


def _replace(path: str, data: bytes) -> None:
    try:
        with whole_file(path) as file:
            file.write(data)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None
