"""`requires_loadable`: packages that must load for a test, as `backends resolve` judges from their files."""

from functools import cache
from typing import Any

from mlbackends.base.errors import UnknownName
from mlbackends.host.host import Host
from mlbackends.loading.packages import resolve
from mlbackends.model.loading import Verdict

MARK = "requires_loadable"


def requires_loadable(*packages: str) -> Any:
    """Return the decorator that skips a test unless packages load: a marker, for `pytestmark` too.

    packages: names of distributions or modules, such as "flash_attn". Nothing is imported. A package that
    loads and then falls back to the CPU counts as one that loads.
    """
    import pytest

    return getattr(pytest.mark, MARK)(*packages)


@cache
def why_not_loadable(package: str) -> str:
    """Return why a package does not load in this environment, "" if it does."""
    try:
        found = resolve(Host(), (package,)).packages[0]
    except UnknownName:
        return "it is not installed"
    if found.verdict in (Verdict.LOADS, Verdict.FALLS_BACK):
        return ""
    words = [fault.message for fault in found.faults[:1]]
    return ": ".join([f"{found.name} {found.version} {found.verdict}", *words])
