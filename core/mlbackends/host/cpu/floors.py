"""What wheels need of an x86-64 CPU, beyond what every one has: the rows of floors.toml, with sources."""

from collections.abc import Container
from functools import cache

import msgspec
from msgspec import Struct

from mlbackends.base.specifiers import satisfies
from mlbackends.base.tables import table
from mlbackends.host.cpu.features import level_features


class CpuFloor(Struct, frozen=True, forbid_unknown_fields=True):
    """What wheels of some versions need.

    needs: names of instruction sets, or of an x86-64 level. message: what is printed without them. loads:
    whether the import still works. importers: packages that import it in any case, unless another package
    is installed. instead: the requirement that installs what older CPUs run. is_instead_alone: whether that
    writes the same files, so that this package must go first. source: where it was read or tried.
    """

    distributions: tuple[str, ...]
    needs: tuple[str, ...]
    source: str
    versions: str = ""
    message: str = "Illegal instruction (core dumped)"
    loads: bool = False
    importers: tuple[str, ...] = ()
    unless: str = ""
    instead: str = ""
    is_instead_alone: bool = False


@cache
def cpu_floors() -> tuple[CpuFloor, ...]:
    """Return the rows of floors.toml."""
    return msgspec.convert(table("host/cpu/floors.toml")["package"], tuple[CpuFloor, ...])


def unmet_floor(
    name: str, version: str, features: frozenset[str], installed: Container[str]
) -> tuple[CpuFloor, list[str]] | None:
    """Return the first row for a wheel whose needs a CPU lacks, with the features that it lacks."""
    for row in cpu_floors():
        needed = {word for need in row.needs for word in level_features(need) or (need.lower(),)}
        is_for = name in row.distributions and row.unless not in installed
        if is_for and not needed <= features and (not row.versions or satisfies(version, row.versions)):
            return row, sorted(needed - features)
    return None
