"""Which records count: `--where` expressions, and leaving out the first calls.

    operation=matmul and duration_ns>20us
    shape~'64x64|128x128' and not (isa=avx2 or slow_path)
    arguments.m>=512

The grammar is that of `mlbackends.base.condition`. ~ finds a regular expression anywhere in the text; a
value is in quotes or ends at the next blank, and `none` is what is not known.

A field alone is true where it holds something. What is not known is different from every value, and
neither more nor less. Nothing is ever evaluated as a program.
"""

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from msgspec import Struct

from mlbackends.base.condition import Comparison, Condition, Language, Unreadable, parse
from mlbackends.base.errors import BadInput
from mlbackends.base.quantities import amount, duration
from mlbackends.model.trace import Record
from mlbackends.tracing import fields

Test = Callable[[Record], bool]

_LANGUAGE = Language(
    name=re.compile(r"[A-Za-z_][\w.\-]*"),
    word=re.compile(r"\S+"),
    operators=("=", "==", "!=", "<", "<=", ">", ">=", "~", "!~"),
    named="a field",
    joins=True,
)
_TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_LONGEST = 10_000
PATTERN_HINT = "escape a literal special character with a backslash, such as \\("


class Where(Struct, frozen=True):
    """An expression that was understood; call it with a record.

    fields: the fields that it reads. equals: the fields that it compares by =, with the values.
    """

    text: str
    fields: frozenset[str]
    test: Test
    equals: tuple[tuple[str, str], ...] = ()

    def __call__(self, record: Record) -> bool:
        """Return whether it holds for a record."""
        return self.test(record)


def where(*texts: str) -> Where:
    """Understand expressions that must all hold; none holds for every record.

    Raises BadInput with the position of the error and the nearest field.
    """
    compared: list[tuple[str, str, str]] = []
    tests = []
    for text in filter(str.strip, texts):
        if len(text) > _LONGEST:
            raise BadInput(f"the expression has {len(text)} characters; {_LONGEST} are allowed")
        try:
            condition = parse(text, _LANGUAGE)
        except Unreadable as error:
            example = "such as operation=matmul and duration_ns>1000"
            raise BadInput(f"in --where {text!r}: {error}", example) from None
        tests.append(_test(condition, compared))
    text = " and ".join(filter(str.strip, texts))
    names = frozenset(name for name, _, _ in compared)
    equals = tuple((name, value) for name, sign, value in compared if sign in ("=", "=="))
    test = tests[0] if len(tests) == 1 else lambda record: all(test(record) for test in tests)
    return Where(text, names, test, equals)


def _test(condition: Condition, compared: list[tuple[str, str, str]]) -> Test:
    """Return the test that a condition is. compared: its comparisons are added, by field, sign and value."""
    if isinstance(condition, Comparison):
        name, sign = fields.field_name(condition.name), condition.operator
        value = str(condition.operand)
        value = fields.trace_types(value) if name == "dtype" else value
        compared.append((name, sign, value))
        if sign:
            return _comparison(name, sign, value)
        reader = fields.read(name)
        return lambda record: bool(reader(record))
    tests = [_test(part, compared) for part in condition.parts]
    if condition.word == "not":
        return lambda record: not tests[0](record)
    if condition.word == "or":
        return lambda record: any(test(record) for test in tests)
    return lambda record: all(test(record) for test in tests)


def after_first(records: Iterable[Record], count: int) -> Iterable[Record]:
    """Leave out the first `count` executions of each call: they set up what others use.

    First calls are counted per process, and per thread where the trace records threads.

    Raises BadInput where `count` is negative. Other records pass.
    """
    if count < 0:
        raise BadInput(f"{count} calls cannot be skipped; give 0 or more")
    counts: Counter[tuple[str, int | None, int | None, str]] = Counter()

    def is_later(record: Record) -> bool:
        call = (record.source, record.process, record.thread, record.key)
        if not record.executed or counts[call] >= count:
            return True
        counts[call] += 1
        return False

    return filter(is_later, records) if count else records


def grouping(text: str) -> tuple[str, ...]:
    """Understand `--group-by operation,shape`; raises BadInput with the nearest field."""
    names = tuple(fields.field_name(part) for part in text.split(",") if part.strip())
    if not names:
        raise BadInput("nothing to group by", "such as operation,shape")
    return tuple(dict.fromkeys(names))


def _comparison(name: str, sign: str, value: str) -> Test:
    reader = fields.read(name)
    is_equality = sign in {"=", "==", "!="}
    operand: Any
    if sign in {"~", "!~"}:
        try:
            search = re.compile(value).search
        except (re.error, RecursionError, OverflowError) as error:
            raise BadInput(f"{value!r} is not a regular expression: {error}", PATTERN_HINT) from None
        text_of = fields.read_text(name)
        return lambda record: (search(text_of(record)) is not None) is (sign == "~")
    if value.lower() == "none" and is_equality:
        return lambda record: (reader(record) not in {None, ""}) is (sign == "!=")
    if name in fields.TRUTHS:
        operand = _TRUTHS.get(value.lower())
        if operand is None or not is_equality:
            raise BadInput(f"{name} is true or false", f"write {name}=true, or not {name}")
        return lambda record: reader(record) is (operand is (sign != "!="))
    if is_equality and name not in fields.NUMBERS:
        return lambda record: (reader(record) == value) is (sign != "!=")
    if "." not in name and name not in fields.NUMBERS:
        raise BadInput(f"{name} is a text, so {sign} does not apply", "compare it by =, !=, ~ or !~")
    if name.endswith("_ns"):
        number, units = duration(value), "ns, us, ms, s"
    else:
        typed = amount(value)
        number, units = typed.value if typed else None, "k, M, G, KiB, MiB, GiB"
    if number is None:
        raise BadInput(f"{name} is a number, and {value!r} is not one", f"units may be {units}")
    compare, operand = _SIGNS[sign], number

    def compared(record: Record) -> bool:
        try:
            return bool(compare(float(reader(record)), operand))
        except (TypeError, ValueError):  # not known, or an entry of a table that is not a number
            return sign == "!="

    return compared
