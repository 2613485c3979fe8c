"""The record of `backends flags list`: each switch with its value, and which programs use it."""

from typing import Any

from msgspec import Struct

SCHEMA = "backends.flags/1"


class Switch(Struct, frozen=True):
    """One switch in this process.

    value: None if the library itself chooses, or if an older switch cannot express the state, which
    `problem` then describes. origin: default, environment, file or set. variable: the environment
    variable of its first value. used_by: who acts on it. reached: attribute, function, flags (through
    `flags()` and `set_flags()` alone) or variable. since: the first torch that has it
    with this value, "" for 2.13 or older. lacking: the torch here if that is older, "" otherwise.
    """

    name: str
    value: Any
    default: Any
    origin: str
    used_by: tuple[str, ...]
    variable: str
    accepts: str
    reached: str
    doc: str
    problem: str = ""
    since: str = ""
    lacking: str = ""


class Switches(Struct, frozen=True):
    """Every switch, in the order of the table."""

    schema: str
    tool: str
    flags: tuple[Switch, ...]
