"""Rows of facts that sysfs has in folders alike: ports, interfaces, idle states, power limits, firmware.

rows.json has them by name. `with`, `without`: a path in a folder that must exist, a link that must not.
`named`: what of the folder's path names the row; its last part otherwise. `columns`: for each a path in the
folder, a regular expression for the text, whose first group is the value, and a factor that makes it a
number; a factor of true makes it true. A path that ends in "@" is a link: its target's name is the text.
"""

import re
from typing import Any

from mlbackends.base.quantities import one_line
from mlbackends.base.tables import table
from mlbackends.host.host import Host
from mlbackends.model.records import FactValue, nonempty

_MOST_FOLDERS = 1024
_LONGEST = 80


def rows(host: Host, name: str) -> list[dict[str, FactValue]]:
    """Return a row for each folder that has a value besides its name; values that do not fit are left out."""
    spec = table("host/system/rows")[name]
    listed = []
    for folder in host.glob(spec["folders"])[:_MOST_FOLDERS]:
        lacks = "with" in spec and not host.exists(f"{folder}/{spec['with']}")
        if lacks or ("without" in spec and host.is_link(f"{folder}/{spec['without']}")):
            continue
        named = re.search(spec.get("named", "([^/]+)$"), folder)
        read = {column: _value(host, folder, *form) for column, form in spec["columns"].items()}
        if row := nonempty(read):
            listed.append({"name": one_line("/".join(named.groups()) if named else "", _LONGEST), **row})
    return listed


def only_row(host: Host, *names: str) -> dict[str, FactValue]:
    """Return the columns of the first rows of these names together."""
    columns: dict[str, FactValue] = {}
    for name in names:
        columns |= next(iter(rows(host, name)), {})
    columns.pop("name", None)
    return columns


def _value(host: Host, folder: str, path: str, form: str = "(.+)", factor: Any = None) -> FactValue | None:
    at = f"{folder}/{path.removesuffix('@')}"
    if "*" in path:
        at = next(iter(host.glob(at)), at)
    text = host.readlink(at).rpartition("/")[2] if path.endswith("@") else host.read(at, 256)
    match = re.fullmatch(form, one_line(text, _LONGEST), re.ASCII)
    if match is None or factor is None or factor is True:
        return match and (factor or match[1])
    number = float(match[1]) * factor
    return int(number) if number.is_integer() else round(number, 6)
