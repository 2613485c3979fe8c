"""Where this library and torch 2.13 differ on the surface that they share: the rows of deviations.toml.

`backends explain deviations` prints them, and tests/compat/test_deviations.py shows each side by side:
a difference that is not listed fails there, and so does an entry that no longer is a difference.
"""

import os
import tomllib

import msgspec


class Deviation(msgspec.Struct, frozen=True):
    """One difference.

    code: stable, for use in scripts. names: what it concerns, dotted, below `mlbackends`; "*" is any.
    torch, ours: one sentence each on what happens. why: the reason for ours.
    """

    code: str
    names: tuple[str, ...]
    torch: str
    ours: str
    why: str


with open(os.path.join(os.path.dirname(__file__), "deviations.toml"), "rb") as file:
    DEVIATIONS = msgspec.convert(tomllib.load(file)["deviations"], tuple[Deviation, ...])
