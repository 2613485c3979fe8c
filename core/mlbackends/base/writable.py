"""Records that any reader can decode: JSON holds only text that is UTF-8."""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from mlbackends.base.patterns import UNFIT

Record = TypeVar("Record", bound=Struct)


def writable(record: Record) -> Record:
    """Return the record, with U+FFFD for every byte in its texts that is not UTF-8.

    File names and link targets may hold any bytes. Raises TypeError where a value is of a type that
    no record has.
    """
    try:
        msgspec.json.encode(record)
    except UnicodeEncodeError:
        return msgspec.convert(cleaned(msgspec.to_builtins(record)), type(record))
    return record


def escaped(data: bytes) -> bytes:
    """Return JSON with escapes for what must not be shown; msgspec has some below U+0020 alone."""
    if data.isascii() and b"\x7f" not in data:
        return data
    return UNFIT.sub(lambda found: f"\\u{ord(found[0]):04x}", data.decode()).encode()


def csv_cell(value: object) -> object:
    """Return a value as CSV has it: truths in lower case, U+FFFD for what must not be shown.

    A text that spreadsheets would compute, such as =1+1, +1+1 or @SUM(A1), begins with an apostrophe.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        try:
            float(value)
        except ValueError:
            value = f"'{value}"
    if not isinstance(value, str) or (value.isascii() and value.isprintable()):
        return value
    return "\r\n".join(UNFIT.sub("\ufffd", line) for line in value.split("\r\n"))


def is_text(text: str) -> bool:
    """Return whether a text can be written as UTF-8."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def clean(text: str) -> str:
    """Return the text with U+FFFD for each byte of a file name that is not UTF-8."""
    return text.encode(errors="surrogatepass").decode(errors="replace") if not is_text(text) else text


def cleaned(value: Any) -> Any:
    """Return a JSON value whose texts are clean."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list | tuple):
        return [cleaned(item) for item in value]
    if isinstance(value, dict):
        return {clean(str(key)): cleaned(item) for key, item in value.items()}
    return value
