"""Where text goes: standard output, or a file that is written whole or not at all."""

import os
import sys

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
    sys.stdout.flush()
    if hasattr(sys.stdout, "buffer"):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    else:
        sys.stdout.write(data.decode(encoding, "replace"))


def _replace(path: str, data: bytes) -> None:
    import tempfile

    try:
        # Through a link: the new file must come to be on the file system of the old one.
        target = os.path.realpath(path)
        folder = os.path.dirname(target)
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "wb") as device:  # /dev/stderr, a FIFO
                device.write(data)
            return
        mode = os.stat(path).st_mode & 0o777 if os.path.exists(path) else 0o666 & ~_umask()
        handle, part = tempfile.mkstemp(prefix=".backends-", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(part, mode)
            os.replace(part, target)
        except BaseException:
            os.unlink(part)
            raise
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
