"""What a rule or condition expects: a selection and an assertion, read from the short form or from keys.

The short form is `[each|any|none] FACT OPERATOR VALUE`, such as `cpu.capability in [AVX2, AVX512]`.
"""

from typing import Any, get_origin

from msgspec import Struct

from mlbackends.audit.policy import assertions, selection
from mlbackends.audit.policy.assertions import Assertion
from mlbackends.audit.policy.selection import PRESENCES, WORD, Selection
from mlbackends.base.comparison import SIGNS
from mlbackends.base.condition import ALONE, LISTS, Comparison, Language, Unreadable, parse
from mlbackends.base.errors import shown
from mlbackends.base.patterns import pattern

LONGEST = 2000
SHORT = Language(
    name=selection.NAME,
    word=WORD,
    operators=(*SIGNS, *LISTS, "matches", "contains", "at_least", "count", *ALONE),
    named="a name such as cpu.capability or nvidia.devices[kind == cuda].name",
)
_QUANTIFIER = pattern(r"\s*(each|any|none)\s+(?=[A-Za-z_])")
#: What is asserted of one value, never of a list or table.
_OF_ONE = (*SIGNS, *LISTS, "version", "min", "max", "at_least", "matches")
_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


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
    quantifier, rest = "each", text.strip()
    if len(text) > LONGEST:
        raise ValueError(f"is longer than {LONGEST} characters")
    if found := _QUANTIFIER.match(rest):
        quantifier, rest = found[1], rest[found.end() :]
    try:
        read_form = parse(rest, SHORT)
    except Unreadable as error:
        if found := selection.NAME.match(rest):
            selection.read(found[0], added)  # a wrong name is the first thing that is wrong
            if found[0] == rest:
                raise ValueError(f"is only a name: write '{rest} present', or '{rest} >= VALUE'") from None
        if error.needed != "the end":
            raise
        raise ValueError(
            f"{shown(error.rest)} cannot follow: quote what has blanks or commas; there is no 'and'"
            " and no 'or': write two rules, or version = \">=1,<2\""
        ) from None
    assert isinstance(read_form, Comparison)
    operand: Any = read_form.operand
    if read_form.operator in (*ALONE, *LISTS):
        operand = read_form.operator in ALONE or list(operand)
    return expected(selection.read(read_form.name, added), read_form.operator, operand, quantifier)


def name(text: str, added: tuple[str, ...] = ()) -> Selection:
    """Read a dotted name and nothing else. Raises ValueError."""
    if len(text) > LONGEST:
        raise ValueError(f"is longer than {LONGEST} characters")
    if not selection.NAME.fullmatch(text.strip()):
        raise ValueError(f"{shown(text)} is not {SHORT.named}; check takes the short form")
    return selection.read(text.strip(), added)


def expected(selected: Selection, operator: str, operand: Any, quantifier: str = "each") -> Expectation:
    """Return the expectation that an operator or a rule's key makes. Raises ValueError."""
    if operator in ALONE:
        if quantifier == "none":
            raise ValueError("write absent instead of none ... present")
        kind = operator if operand is not False else "absent"
        return Expectation(selected, Assertion(kind, bool), kind, quantifier=quantifier)
    field = "presence"
    is_presence = operator in SIGNS and str(operand).lower() in PRESENCES
    if not selected.head and operator != "at_least" and not is_presence:
        if operator not in ("version", *SIGNS):
            raise ValueError(
                f"{selected.text} names a probe, which has no such value; "
                f"write {selected.text}.version, or another value of it"
            )
        field = "version"
    if operator == "count":
        if quantifier != "each":
            raise ValueError(f"count goes with no quantifier, and {quantifier} is one")
        return Expectation(selected, assertions.counted(operand), "count")
    assertion = _of_value(selected, operator, operand, () if field == "version" else selected.order)
    return Expectation(selected, assertion, "value", field, quantifier)


def _of_value(selected: Selection, operator: str, operand: Any, order: tuple[str, ...]) -> Assertion:
    """Return what an operator asserts of each value, if that can be so for what its probe declares."""
    kind = selected.kind
    assertions.refuse_beyond(operand)
    if operator in _OF_ONE and get_origin(kind) in (list, dict):
        noun = "list" if get_origin(kind) is list else "table"
        raise ValueError(
            f"{selected.text} is a {noun}: use count to compare its length, contains to check its elements"
        )
    if operator in ("version", "matches") and kind in (bool, int, float):
        raise ValueError(f"{selected.text} is not a text but {_KINDS[kind]}")
    if operator == "min" and order:
        raise ValueError(
            f"{selected.text} is one of the levels {', '.join(order)}: write at_least instead of min"
        )
    if operator in ("min", "max") and kind in (bool, str):
        raise ValueError(f"{selected.text} is not a number but {_KINDS[kind]}")
    if operator in SIGNS:
        return assertions.compared(operator, operand, order, kind)
    if operator == "at_least":
        return assertions.at_least(operand, order)
    if operator in LISTS:
        each = [assertions.compared("==", word, order, kind).holds for word in operand]
        is_in = operator == "in"
        needed = f"{'one' if is_in else 'none'} of {', '.join(operand)}"
        return Assertion(needed, lambda value: any(test(value) for test in each) is is_in)
    if operator in ("min", "max"):
        return assertions.bounded(">=" if operator == "min" else "<=", operand)
    if operator in ("equals", "not_equals", "one_of", "none_of"):
        is_list = operator in ("one_of", "none_of")
        for operand_part in operand if is_list else [operand]:
            fits = {bool: isinstance(operand_part, bool), str: isinstance(operand_part, str)}
            if kind in _KINDS and not fits.get(kind, assertions.is_number(operand_part)):
                raise ValueError(f"{selected.text} is {_KINDS[kind]}, never {shown(operand_part)}")
        make = assertions.one_of if is_list else assertions.equals
        return make(operand, is_so=operator in ("equals", "one_of"))
    assertion: Assertion = getattr(assertions, operator)(operand)
    return assertion
