"""Numbers that are known to be wrong: which calls of which versions give them, from public reports.

The files beside this one have an entry each, named by its report, such as `[pytorch-196678]`. An entry says
for which platform, chips, versions and problems a call returns wrong numbers without an error. An entry
matches only where all that it asks for is known: what is not known is not reported.
"""

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from mlbackends.base.comparison import fits
from mlbackends.base.specifiers import satisfies
from mlbackends.base.tables import table
from mlbackends.model.problem import AttentionProblem, KnownWrong, contiguous_strides

_COMPARISON = re.compile(r"(?:% (\d+) )?(==|!=|<=?|>=?) (-?[\d.e+]+)")

#: Names that look like a word at the beginning of a sentence.
_NAMES = ("Cooper",)

Condition = bool | str | list[Any]


class Neighbour(Struct, frozen=True, forbid_unknown_fields=True):
    """The problem of an entry, or a neighbour that it does not cover: what differs from the entry's own.

    problem: in the words of `backends sdpa`. values: by the names of `where`.
    """

    problem: str = ""
    values: dict[str, Any] = {}
    versions: dict[str, str] = {}
    chip: str = ""
    backend: str = ""
    platform: str = ""


class Default(Struct, frozen=True, forbid_unknown_fields=True):
    """Where torch takes a backend unasked: with these versions, on these chips; empty for all."""

    versions: dict[str, str] = {}
    chips: tuple[str, ...] = ()


class Entry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One report of wrong numbers.

    title: the symptom. product: what is installed and called. function: the call. backends: attention
    backends that give them, () for all. platforms: "cpu", "cuda", ... chips: compute capabilities, names such
    as gfx942, or features of a CPU; () for all. systems: by Python's names. versions: the clauses that
    installed versions meet. refused_by: those of what refuses the call instead. where: the conditions that a
    problem meets, by the name of the value. wrong, right: a problem that it covers, and neighbours that it
    does not. instead: what avoids it. variables: that avoid it. default: whether torch takes that backend
    without being told to. unpredictable: why a problem that it covers may still be right. repro: a program
    that prints wrong or right.
    """

    title: str
    symptom: str
    operation: str
    product: str
    function: str
    platforms: tuple[str, ...]
    versions: dict[str, str]
    where: dict[str, Condition]
    wrong: Neighbour
    right: tuple[Neighbour, ...]
    first_bad: str
    first_good: str
    instead: str
    sources: tuple[str, ...]
    backends: tuple[str, ...] = ()
    refused_by: dict[str, str] = {}
    chips: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    default: Default | None = None
    unpredictable: str = ""
    repro: str = ""
    reproduced: str = ""
    name: str = ""

    @property
    def in_a_sentence(self) -> str:
        """The title without its capital letter, unless that belongs to a name."""
        first, _, rest = self.title.partition(" ")
        is_word = (first[1:].islower() or first == "A") and first not in _NAMES
        return f"{first.lower()} {rest}" if is_word else self.title

    @property
    def source(self) -> str:
        """The report as people write it: pytorch#196678."""
        return "#".join(self.name.rsplit("-", 1))


class Place(NamedTuple):
    """Where a call runs. versions: what is installed. chips: the chip's names, or the features of the CPU."""

    platform: str
    versions: Mapping[str, str]
    chips: frozenset[str] = frozenset()
    system: str = ""


@cache
def entries() -> tuple[Entry, ...]:
    """Return all entries, by the names of their files."""
    folder = os.path.dirname(__file__)
    files = sorted(name for name in os.listdir(folder) if name.endswith(".toml"))
    rows = [(name, row) for file in files for name, row in table(f"known_wrong/{file}").items()]
    return tuple(msgspec.convert(row | {"name": name}, Entry) for name, row in rows)


def is_there(entry: Entry, place: Place) -> bool:
    """Return whether some problems of an entry are wrong at a place."""
    return (
        place.platform in entry.platforms
        and (not entry.chips or not place.chips.isdisjoint(entry.chips))
        and (not entry.systems or place.system in entry.systems)
        and _meets(place, entry.versions)
        and not any(_meets(place, {name: clauses}) for name, clauses in entry.refused_by.items())
    )


def is_default(entry: Entry, place: Place) -> bool:
    """Return whether torch takes the backend of an entry unasked at a place."""
    default = entry.default
    return (
        default is not None
        and (not default.chips or not place.chips.isdisjoint(default.chips))
        and _meets(place, default.versions)
    )


def covers(entry: Entry, values: Mapping[str, Any]) -> bool:
    """Return whether a problem is one of those that an entry is about. values: by the names of `where`."""
    return all(_holds(values.get(name), condition) for name, condition in entry.where.items())


def known_wrong(problem: AttentionProblem, backend: str, place: Place) -> Iterator[Entry]:
    """Yield the entries that cover a problem if a backend, such as CUDNN_ATTENTION, computes it."""
    there = [
        entry
        for entry in entries()
        if entry.operation == "attention"
        and (not entry.backends or backend in entry.backends)
        and is_there(entry, place)
    ]
    if there:
        values = attention_values(problem)
        yield from (entry for entry in there if covers(entry, values))


def reports(problem: AttentionProblem, backend: str, place: Place) -> tuple[KnownWrong, ...]:
    """Return the entries of `known_wrong` as records."""
    return tuple(
        KnownWrong(
            entry.in_a_sentence,
            entry.source,
            entry.sources[0],
            entry.versions,
            entry.instead,
            entry.unpredictable,
        )
        for entry in known_wrong(problem, backend, place)
    )


def attention_values(problem: AttentionProblem) -> dict[str, Any]:
    """Return the values of an attention problem that conditions can name."""
    leading = problem.leading_shape
    mask = problem.mask
    kind = "none" if mask is None else "bool" if mask.dtype == "bool" else "float"
    return {
        "dtype": problem.dtype,
        "batch": leading[0] if len(leading) > 1 else 1,
        "heads": problem.heads,
        "kv_heads": problem.key_heads,
        "queries": problem.query_length,
        "keys": problem.key_length,
        "head_dim": problem.head_dim,
        "value_head_dim": problem.value_dim,
        "numel": max(problem.query.elements, problem.key.elements, problem.value.elements),
        "scores": problem.query.elements // max(problem.head_dim, 1) * problem.key_length,
        "causal": problem.is_causal,
        "mask": kind,
        "dropout": problem.dropout,
        "gqa": problem.heads != problem.key_heads,
        "window": problem.window != (-1, -1),
        "softcap": problem.softcap,
        "backward": problem.wants_gradient,
        "mask_gradient": mask is not None and mask.requires_grad,
        "nested": problem.is_nested,
        "varlen": bool(problem.query_lengths),
        "paged": problem.page_table is not None,
        "sinks": problem.sinks is not None,
        "contiguous": all(
            spec.strides == contiguous_strides(spec.shape)
            for spec in (problem.query, problem.key, problem.value)
        ),
    }


def _meets(place: Place, versions: Mapping[str, str]) -> bool:
    """Return whether the versions at a place are known and meet all clauses, builds such as +cu130 aside."""
    return all(
        (version := place.versions.get(name, "")) != ""
        and satisfies(version.partition("+")[0], clauses) is True
        for name, clauses in versions.items()
    )


def _holds(value: Any, condition: Condition) -> bool:
    if value is None:
        return False
    if isinstance(condition, list):
        return value in condition
    if isinstance(condition, bool):
        return value is condition
    if not (comparison := _COMPARISON.fullmatch(condition)):
        return bool(value == condition)
    divisor, sign, bound = comparison.groups()
    return fits(value % int(divisor) if divisor else value, sign, bound)
