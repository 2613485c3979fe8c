"""Files of facts about processors, libraries and clouds, next to the modules that use them."""

import os
from functools import cache
from typing import Any

import msgspec

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


@cache
def table(name: str) -> Any:
    """Return what a file of the package holds.

    name: its path, of a JSON file without ending: "host/cpu/arm", "audit/weights.toml".
    """
    is_toml = name.endswith(".toml")
    with open(os.path.join(_PACKAGE, name if is_toml else f"{name}.json"), "rb") as file:
        data = file.read()
    if not is_toml:
        return msgspec.json.decode(data)
    import tomllib

    return tomllib.loads(data.decode())
