"""The JSON files that hold facts about processors, libraries and clouds, beside the modules that use them."""

import os
from functools import cache
from typing import Any

import msgspec

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@cache
def table(name: str) -> Any:
    """Return what a JSON file of the package holds. name: its path without ending, "host/cpu/arm"."""
    with open(f"{_PACKAGE}/{name}.json", "rb") as file:
        return msgspec.json.decode(file.read())
