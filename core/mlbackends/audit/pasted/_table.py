"""Formats that are rows of table.json, by the name that a file would have.

title: what the text is. signs: patterns that are all found in such a text. values: pairs of a pattern and the
values of each match, as in `Match.expand`, by their names; "platform" is what platform.platform() returns.
"""

import re
from collections.abc import Iterator
from types import ModuleType

from mlbackends.audit.pasted._stated import Stated, is_stated, package, platform
from mlbackends.base.tables import table

_PACKAGES = "packages.distributions."


def load(name: str) -> ModuleType:
    """Return a row as a module."""
    row = table("audit/pasted/table")[name]
    module = ModuleType(name, row["title"])

    def matches(text: str) -> bool:
        return all(re.search(sign, text, re.MULTILINE) for sign in row["signs"])

    def read(text: str) -> Iterator[Stated]:
        for pattern, names in row["values"]:
            for match in re.finditer(pattern, text, re.MULTILINE):
                for template, value in names.items():
                    yield from _stated(match.expand(template), match.expand(value).strip(), match.start())

    vars(module).update(matches=matches, read=read)
    return module


def _stated(name: str, value: str, at: int) -> Iterator[Stated]:
    if not is_stated(value):
        return
    if name == "platform":
        yield from platform(value, at)
    elif name.startswith(_PACKAGES):
        yield package(name.removeprefix(_PACKAGES), value, at)
    else:
        yield Stated(name, value, at)
