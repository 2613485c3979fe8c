"""Writing text to standard output, standard error or a whole file; and records as JSON."""

import codecs
import math
import os
import sys
from errno import ENOENT
from typing import Any

import click

from mlbackends.base.errors import BadInput
from mlbackends.base.mounts import check
from mlbackends.base.patterns import pattern
from mlbackends.host.files import standard_output, whole_file
from mlbackends_cli.text.plain import log_line

_LACKING = "mlbackends.ascii"
_HALVES = pattern("[\ud800-\udfff]")


def write(text: str | bytes, path: str = "", *, mode: int | None = None) -> None:
    """Write text to a file, or to standard output if `path` is "" or "-"; bytes as they are.

    Characters that the terminal's encoding lacks are replaced. Raises BadInput if
    the file cannot be written; it then keeps its content. mode: of the file, None for the usual one.
    """
    if isinstance(text, str) and text and not text.endswith("\n"):
        text += "\n"
    if path not in ("", "-"):
        try:
            with whole_file(path, mode) as file:
                file.write(text.encode() if isinstance(text, str) else text)
        except OSError as error:
            folder = os.path.dirname(path) or "."
            is_missing = error.errno == ENOENT and not os.path.isdir(folder)
            hint = f"make the folder first: mkdir -p {folder}" if is_missing else ""
            raise BadInput(f"{path} cannot be written: {error.strerror}", hint) from None
        return
    encoding = sys.stdout.encoding or "ascii"
    data = text if isinstance(text, bytes) else b""
    if isinstance(text, str):
        try:
            data = text.encode(encoding)
        except UnicodeEncodeError:
            from mlbackends_cli.terminal import in_ascii

            codecs.register_error(_LACKING, in_ascii)
            data = text.encode(encoding, _LACKING)
    if not hasattr(sys.stdout, "buffer"):
        sys.stdout.write(data.decode(encoding, "replace"))
        return
    with standard_output() as file:
        file.write(data)


def write_paged(text: str, path: str = "") -> None:
    """Write text as `write` does; through the user's pager if the terminal has fewer lines."""
    from mlbackends_cli import terminal

    if path or not 0 < terminal.rows() <= text.count("\n"):
        write(text, path)
        return

    # PAGER, else less -R; leaving the pager early is not an error.
    click.echo_via_pager(text.rstrip("\n"))


def log(message: str, hint: str = "") -> None:
    """Print one line to standard error, and a hint below it; ignores a closed stream."""
    try:
        click.echo(f"backends: {log_line(message)}", err=True)
        if hint:
            click.echo(f"hint: {log_line(hint)}", err=True)
    except OSError:  # standard error is closed
        return


def indented(record: object) -> str:
    """Return a record, or dicts and lists, as readable JSON, indented by two blanks per level."""
    import msgspec

    return msgspec.json.format(json_line(record), indent=2)


def json_line(record: object) -> str:
    """Return a record as JSON on one line; halves of characters become U+FFFD, controls are escaped."""
    import msgspec

    from mlbackends.base.writable import escaped

    try:
        data = msgspec.json.encode(record)
    except UnicodeEncodeError:
        data = msgspec.json.encode(json_data(msgspec.to_builtins(record)))
    return escaped(data).decode()


def json_data(value: Any) -> Any:
    """Return data with what JSON cannot hold replaced: halves of characters, infinity and NaN."""
    if isinstance(value, str):
        return value if value.isascii() else _HALVES.sub("\ufffd", value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {json_data(name): json_data(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_data(item) for item in value]
    return value


def refuse_unwritable(*paths: str) -> None:
    """Raise BadInput for a file that cannot be written, before hours are spent on its content.

    Also for a file that would be written twice and lose its first content; "-" counts as a file.
    """
    seen: set[str] = set()
    for path in paths:
        check(path)
        target = path if path in ("", "-") else os.path.realpath(path)
        if target in seen and (target == "-" or not os.path.exists(target) or os.path.isfile(target)):
            name = "standard output" if target == "-" else path
            raise BadInput(f"two outputs would be written to {name}", "name a file for each")
        seen.add(target)
        if path in ("", "-"):
            continue
        folder = os.path.dirname(os.path.realpath(path))
        if os.path.isdir(path):
            raise BadInput(f"{path} cannot be written: it is a folder")
        if not os.path.isdir(folder):
            raise BadInput(f"{path} cannot be written: there is no folder {folder}")
        replaced = os.path.isfile(path) or not os.path.exists(path)  # and no device or FIFO
        if replaced and not os.access(folder, os.W_OK):
            raise BadInput(f"{path} cannot be written: the folder {folder} is not writable")
