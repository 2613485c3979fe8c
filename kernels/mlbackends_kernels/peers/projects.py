"""The projects of projects.toml as peers."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlbackends.sdpa import constraints as need
from mlbackends.sdpa.constraints import Constraint
from mlbackends.sdpa.rules import cpu, cuda, cuda_cudnn
from mlbackends.sdpa.rules.environment import NEWEST, Environment
from mlbackends.sdpa.verify.peer import Peer
from mlbackends_kernels.checking import program

_TABLE: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_RULES = {
    "cpu.flash": cpu.flash(Environment()),
    "cuda.efficient": cuda.efficient(NEWEST),
    "cuda.flash": cuda.flash(NEWEST),
    "cuda_cudnn.cudnn": cuda_cudnn.cudnn(NEWEST),
}


def _constraints(rows: list[Any]) -> Iterator[Constraint]:
    for row in rows:
        if not isinstance(row, str):
            values = (tuple(value) if isinstance(value, list) else value for value in row[1:])
            yield getattr(need, row[0])(*values)
        elif row in _RULES:
            yield from _RULES[row]
        else:
            yield from _constraints(_TABLE["groups"][row])


def _peer(name: str, row: dict[str, Any]) -> Peer:
    lists = {key: tuple(row[key]) for key in ("arguments", "packages") if key in row}
    rules = {key: tuple(_constraints(row[key])) for key in ("constraints", "on_cuda") if key in row}
    takes = frozenset(row.get("takes", ()))
    return Peer(**row | lists | rules | {"name": name, "takes": takes, "program": program(row["program"])})


PEERS = tuple(_peer(name, row) for name, row in _TABLE["peers"].items())
