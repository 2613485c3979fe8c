"""What packages open by code of their own when they are imported, as rows of preloads.toml.

Without these rows an extension module whose libraries are in other packages would seem not to load: its
package opens them first, by their paths. A row holds for some versions of a package; `opens` are its steps in
their order.
"""

from typing import Any

import msgspec
from msgspec import Struct

from mlbackends.base.tables import table
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import Distribution, distribution, distributions
from mlbackends.host.python.requirements import satisfies


class Open(Struct, frozen=True, forbid_unknown_fields=True):
    """Files that are opened, one after the other.

    files: a pattern below the import folders. visible: as RTLD_GLOBAL. attempt: a failure is caught, and the
    steps with `after_failure` follow. optional: a failure is caught and changes nothing. fails: the words
    with which the package then refuses, if they are not the loader's.
    """

    files: str
    visible: bool = False
    attempt: bool = False
    after_failure: bool = False
    optional: bool = False
    fails: str = ""


class Preload(Struct, frozen=True, forbid_unknown_fields=True):
    """What importing a module does before, or instead of, what its Python code shows.

    distributions: those that install the module. versions: for which this holds. imports: the modules that
    are imported first. follows: whether what the module's code imports comes after the steps; otherwise the
    steps are all that matters. source: where it was read.
    """

    module: str
    distributions: tuple[str, ...]
    source: str
    versions: str = ""
    imports: tuple[str, ...] = ()
    opens: tuple[Open, ...] = ()
    follows: bool = False


def rows() -> tuple[Preload, ...]:
    """Return every row."""
    data: dict[str, list[dict[str, Any]]] = table("loading/preloads.toml")
    return msgspec.convert(data["package"], tuple[Preload, ...])


@once_per_host
def preload_of(host: Host, module: str) -> Preload | None:
    """Return the row that holds for the installed version of a module, None without one."""
    for row in rows():
        if row.module != module:
            continue
        for name in row.distributions:
            dist: Distribution | None = distribution(host, name) if name in distributions(host) else None
            if dist and (not row.versions or satisfies(dist.version, row.versions)):
                return row
    return None
