"""What `host.json` of a recorded machine may hold: what no file of the machine tells, by field.

The file may come from anybody. A field of another kind is refused when the machine is opened, by name:
half of a description that is silently taken for none would make the probes tell of another machine.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from mlbackends.model.errors import BadInput

_LARGEST = (1 << 63) - 1
_Bytes = Annotated[int, Meta(ge=0, le=_LARGEST)]
_Count = Annotated[int, Meta(ge=1, le=(1 << 31) - 1)]
_Number = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
_Cpu = Annotated[int, Meta(ge=0, le=(1 << 20) - 1)]


class _Python(Struct):
    """The interpreter that is looked at, as `mlbackends.host.interpreter.describe` gives it."""

    executable: str = ""
    version: str = ""
    implementation: str = ""
    prefix: str = ""
    base_prefix: str = ""
    path: tuple[str, ...] = ()


class _System(Struct):
    """What only a call tells, by the names in `mlbackends.host.calls`; and nodes nobody may open."""

    libc: str | None = None
    page_size: _Count | None = None
    clock_ticks: _Count | None = None
    cpu_count: _Count | None = None
    user_id: _Number | None = None
    group_ids: tuple[_Number, ...] | None = None
    denied_nodes: tuple[str, ...] | None = None


class _Description(Struct):
    platform: str = "linux"
    uname: dict[str, str] = {}
    environment: dict[str, str] = {}
    affinity: tuple[_Cpu, ...] | None = None
    disks: dict[str, tuple[_Bytes, _Bytes]] = {}
    sizes: dict[str, _Bytes] | None = None
    python: _Python | None = None
    system: _System | None = None


def description_in(data: bytes, path: str) -> dict[str, Any]:
    """Return what a host.json says, fields that are not known here as well.

    Raises BadInput with the file, the field and what is wrong with it.
    """
    try:
        msgspec.json.decode(data, type=_Description)
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        what, _, at = str(error).replace("`", "").partition(" - at $")
        field = at.removeprefix(".")
        said = f"{field}: {what[:1].lower()}{what[1:]}" if field else what
        raise BadInput(f"{path} is not what a recorded host holds: {said}") from None
