"""Where this library and torch 2.13 differ on the surface that they share: the rows of deviations.toml.

`backends explain deviations` prints them, and tests/compat/test_deviations.py shows each side by side:
a difference that is not listed fails there, and so does an entry that no longer is a difference.
"""

import msgspec

from mlbackends.base.tables import table


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


DEVIATIONS = msgspec.convert(table("switches/deviations.toml")["deviations"], tuple[Deviation, ...])
