"""Lists of attention problems in files: one a line, in the words of `problem_text`."""

import os
import sys

from mlbackends.base.errors import BadInput, MlBackendsError
from mlbackends.base.mounts import check
from mlbackends.sdpa.problem_text import MOST_PROBLEMS, Given, Wording, parse

_MOST_TEXT = 1 << 20


def read_file(path: str, usual: Given | None = None) -> tuple[Wording, ...]:
    """Return the problems of a file, "-" for standard input. Raises BadInput with file and line."""
    check(path)
    is_folder = os.path.isdir(path)
    if path != "-" and (is_folder or not os.path.exists(path)):
        why = "it is a folder" if is_folder else "there is no such file"
        hint = "it has one problem a line, such as --shape 2,8,1024,64 --causal"
        raise BadInput(f"{path} cannot be read: {why}", hint)
    try:
        if path == "-":
            data = sys.stdin.buffer.read(_MOST_TEXT + 1) if sys.stdin else b""
        else:
            with open(path, "rb") as file:
                data = file.read(_MOST_TEXT + 1)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from None
    if len(data) > _MOST_TEXT:
        raise BadInput(f"{path} is larger than {_MOST_TEXT} bytes, which no list of problems is")
    try:
        text = data.decode("utf-8-sig")  # editors on Windows begin a file with a mark
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is no text: {error.reason} at byte {error.start}") from None
    path = "standard input" if path == "-" else path
    found: list[Wording] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            found += parse(line, usual)
        except MlBackendsError as error:
            raise BadInput(f"{path}:{number}: {error}", error.hint) from None
        if len(found) > MOST_PROBLEMS:
            raise BadInput(f"{path} has more than {MOST_PROBLEMS} problems")
    if not found:
        raise BadInput(f"{path} has no problem in it", "one a line: --shape 2,8,1024,64 --causal")
    return tuple(found)
