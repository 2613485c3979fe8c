"""Processors by the names that drivers and users give them, from device_names.json with its sources."""

import re
from functools import cache

import msgspec
from msgspec import Struct

from mlbackends.base.tables import table
from mlbackends.model.records import Device

_LONGEST = 100
_MAKERS = re.compile("(?:nvidia|geforce|tesla|quadro|amd|radeon|instinct|apple)*")
#: Suffixes of product names that do not change what a device is.
_REST = (
    "(?:ti|d|super|xtx?|gre|maxq?|ultra|laptop|gpu|generation|server|workstation|edition"
    "|sxm[0-9]?|pcie|nvl|oam|hbm[0-9]?e?|[0-9]+gb)*"
)


class DeviceName(Struct, frozen=True):
    """A row of the table. products: a pattern of product names, in lower case without blanks."""

    name: str
    device: Device
    title: str
    source: str
    products: str = ""


@cache
def rows() -> tuple[DeviceName, ...]:
    """Return every row."""
    return msgspec.convert(table("libraries/device_names"), tuple[DeviceName, ...])


def device_of_product(name: str) -> DeviceName | None:
    """Return the row for a product's name, "NVIDIA H100 80GB HBM3", None for an unknown one."""
    product = _MAKERS.sub("", re.sub("[^a-z0-9]", "", name.lower()[:_LONGEST]), 1)
    matches = (row for row in rows() if row.products and re.fullmatch(f"(?:{row.products}){_REST}", product))
    return next(matches, None)
