"""The short form of a rule and of a condition: `FACT OP VALUE`, such as `cpu.capability in [AVX2, AVX512]`.

There is no `and` and no `or`: two rules, or `when`.
"""

from functools import lru_cache
from typing import Any, get_origin

from msgspec import Struct

from mlbackends.audit.policy import assertions, names
from mlbackends.audit.policy.assertions import Assertion
from mlbackends.audit.policy.names import Condition, Selection
from mlbackends.model.comparison import SIGNS
from mlbackends.model.errors import BadInput, shown, suggestion
from mlbackends.model.patterns import pattern
from mlbackends.model.policy import QUANTIFIERS

WORDS = ("in", "not in", "matches", "contains", "at_least", "count", "present", "absent")
_OPERATOR = pattern(r"\s*([<>=!~]+|not\s+in\b|[A-Za-z_]+\b)\s*")
_QUANTIFIER = pattern(r"\s*(each|any|none)\s+(?=[A-Za-z_])")
_VALUE = pattern(r"""\s*(?:"([^"\n]*)"|'([^'\n]*)'|([^\s,"'\[\]]+))\s*""")
_RELATIVE = pattern(r"([A-Za-z0-9_+~-]+(?:\.[A-Za-z0-9_+~-]+)*)")
LONGEST = 2000


class Expectation(Struct, frozen=True):
    """A selection and what is asserted of it.

    kind: present, absent, count, or value for what is asserted of each value. field: what is meant
    of a bare probe: presence or version. quantifier: each, any or none.
    """

    selection: Selection
    assertion: Assertion
    kind: str = "value"
    field: str = "presence"
    quantifier: str = "each"

    @property
    def title(self) -> str:
        """What is expected, on one line."""
        of = f"{self.quantifier} " if self.quantifier != "each" else ""
        count = " count" if self.kind == "count" else ""
        return f"{of}{self.selection.text}{count}: {self.assertion.needed}"


def read(text: str, added: tuple[str, ...] = ()) -> Expectation:
    """Read a short form. Raises ValueError with what is wrong and what would be right."""
    if len(text) > LONGEST:
        raise ValueError(f"is longer than {LONGEST} characters")
    quantifier, rest = "each", text.strip()
    if found := _QUANTIFIER.match(rest):
        quantifier, rest = found[1], rest[found.end() :]
    selection, rest = _selected(rest, added)
    operator, rest = _operator(rest)
    return expected(selection, operator, _operand(operator, rest), quantifier)


def name(text: str, added: tuple[str, ...] = ()) -> Selection:
    """Read a dotted name and nothing else. Raises ValueError."""
    if len(text) > LONGEST:
        raise ValueError(f"is longer than {LONGEST} characters")
    selection, rest = _selected(text.strip(), added)
    if rest:
        raise ValueError(f"{shown(rest)} cannot follow a name; check takes the short form")
    return selection


def _selected(text: str, added: tuple[str, ...]) -> tuple[Selection, str]:
    """Read the name at the start of a text; return it and the rest."""
    end = names.end(text)
    return _known(text[:end], added), text[end:]


@lru_cache(maxsize=4096)
def _known(text: str, added: tuple[str, ...]) -> Selection:
    """Return what a name selects; many rules of a policy look at the same."""
    return names.declared(names.read(text, condition), added)


def expected(
    selection: Selection, operator: str, operand: Any, quantifier: str = "each"
) -> Expectation:
    """Return the expectation that an operator or a rule's key makes. Raises ValueError."""
    is_ladder = selection.is_probe and _is_rung(operator, operand)
    field = "presence"
    if selection.is_probe and operator not in ("present", "absent", "at_least") and not is_ladder:
        if operator not in ("version", *SIGNS):
            raise ValueError(
                f"{selection.text} names a probe, which has no such value; "
                f"write {selection.text}.version, or another value of it"
            )
        field = "version"
    if operator in ("present", "absent"):
        wanted = operator if operand is not False else "absent"
        return Expectation(
            selection, Assertion(wanted, bool), wanted, quantifier=_single(quantifier)
        )
    if operator == "count":
        if quantifier != "each":
            raise ValueError(f"count goes with no quantifier, and {quantifier} is one")
        return Expectation(selection, assertions.counted(operand), "count")
    assertion = _of_value(selection, operator, operand, field)
    return Expectation(selection, assertion, "value", field, quantifier)


def _of_value(selection: Selection, operator: str, operand: Any, field: str) -> Assertion:
    kind = selection.kind
    order = selection.order
    assertions.refuse_beyond(operand)
    if operator in _OF_ONE and get_origin(kind) in (list, dict):
        what = "list" if get_origin(kind) is list else "table"
        said = (
            f"{selection.text} is a {what}: count compares how many it has, contains what is in it"
        )
        raise ValueError(said)
    if operator in SIGNS:
        order = () if selection.is_probe and field == "version" else order
        return assertions.compared(operator, operand, order, kind)
    if operator == "at_least":
        return assertions.at_least(operand, order)
    if operator in ("version", "matches") and kind in (bool, int, float):
        raise ValueError(f"{selection.text} is no text but {_NAMES[kind]}")
    if operator in ("min", "max") and kind in (bool, str):
        raise ValueError(f"{selection.text} is no number but {_NAMES[kind]}")
    if operator in ("in", "not in"):
        each = [assertions.compared("==", word, order, kind) for word in operand]
        words = ", ".join(operand)
        if operator == "in":
            return Assertion(f"one of {words}", lambda value: any(one(value) for one in each))
        return Assertion(f"none of {words}", lambda value: not any(one(value) for one in each))
    _check_type(selection, operator, operand)
    make = {"min": assertions.least, "max": assertions.most}.get(operator)
    made: Assertion = (make or getattr(assertions, operator))(operand)
    return made


_OF_ONE = (*SIGNS, "in", "not in", "version", "min", "max", "at_least", "matches")
"""What is asserted of one value, never of a list or table."""
_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


def _check_type(selection: Selection, operator: str, operand: Any) -> None:
    """Refuse to compare a value with what it can never be."""
    if operator not in ("equals", "not_equals", "one_of", "none_of"):
        return
    kind = selection.kind
    for wanted in operand if operator in ("one_of", "none_of") else [operand]:
        fits = {
            bool: isinstance(wanted, bool),
            int: isinstance(wanted, int | float) and not isinstance(wanted, bool),
            float: isinstance(wanted, int | float) and not isinstance(wanted, bool),
            str: isinstance(wanted, str),
        }.get(kind, True)
        if not fits:
            raise ValueError(f"{selection.text} is {_NAMES[kind]}, never {shown(wanted)}")


def _is_rung(operator: str, operand: Any) -> bool:
    return operator in SIGNS and str(operand).lower() in names.LADDER


def _single(quantifier: str) -> str:
    if quantifier == "none":
        raise ValueError("write absent instead of none ... present")
    return quantifier


def _operator(rest: str) -> tuple[str, str]:
    found = _OPERATOR.match(rest)
    known = ", ".join((*SIGNS[1:], *WORDS))
    if not found:
        raise ValueError(f"an operator must follow the name: {known}")
    operator = " ".join(found[1].split())
    if operator == "=":
        raise ValueError("write == for one =")
    if operator not in (*SIGNS, *WORDS):
        near = suggestion(operator, WORDS)
        raise ValueError(f"{shown(operator)} is no operator{near or f': {known}'}")
    return operator, rest[found.end() :]


def _operand(operator: str, rest: str) -> Any:
    if operator in ("present", "absent"):
        if rest.strip():
            raise ValueError(f"nothing follows {operator}, and {shown(rest)} does")
        return True
    if operator == "count":
        return rest.strip()
    if operator in ("in", "not in"):
        if not (rest.startswith("[") and rest.rstrip().endswith("]")):
            raise ValueError(f"a list follows {operator}: [AVX2, AVX512]")
        return [_word(part) for part in rest.strip()[1:-1].split(",")]
    return _word(rest)


def _word(rest: str) -> str:
    found = _VALUE.fullmatch(rest)
    if not found:
        if not rest.strip():
            raise ValueError("a value must follow the operator")
        raise ValueError(
            f"{shown(rest.strip())} is not one value: quote what has blanks or commas; "
            "there is no 'and' and no 'or': write two rules, or version = \">=1,<2\""
        )
    return next(part for part in found.groups() if part is not None)


def condition(text: str) -> Condition:
    """Read one of the conditions inside brackets: kind == cuda. Raises ValueError."""
    found = _RELATIVE.match(text)
    if not found:
        raise ValueError(f"{shown(text)} is no condition such as kind == cuda")
    steps = tuple(found[1].split("."))
    operator, rest = _operator(text[found.end() :])
    if operator not in (*SIGNS, "matches", "contains", "present"):
        raise ValueError(f"{operator} cannot stand in brackets; {', '.join(SIGNS[1:])} can")
    if operator == "present":
        return steps, lambda value: value is not None
    word = _word(rest)
    order = names.LADDER if steps[-1] == "presence" else ()
    if operator in SIGNS:
        return steps, _safe(assertions.compared(operator, word, order, None))
    return steps, _safe(getattr(assertions, operator)(word))


def _safe(assertion: Assertion) -> Any:
    """Return the assertion; what cannot be compared does not fit."""

    def holds(value: Any) -> bool:
        try:
            return assertion(value)
        except BadInput:
            return False

    return holds


assert set(QUANTIFIERS) == {"each", "any", "none"}
