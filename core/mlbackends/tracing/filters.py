"""Which records count: `--where` expressions, and leaving out the first calls.

    operation=matmul and duration_ns>20us
    shape~'64x64|128x128' and not (isa=avx2 or slow_path)
    arguments.m>=512

    expression  := all ("or" all)*              all := one ("and" one)*
    one         := "not" one | "(" expression ")" | FIELD [SIGN VALUE]
    SIGN        := = == != < <= > >= ~ !~       ~ finds a regular expression anywhere in the text
    VALUE       := 'in quotes', "in quotes" or up to the next blank; `none` is what is not told

A field alone is true where it holds something. What is not told is different from every value, and
neither more nor less. Nothing is ever evaluated as a program.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

from mlbackends.model.errors import BadInput
from mlbackends.model.trace import Record
from mlbackends.tracing import fields

Test = Callable[[Record], bool]

_SIGN = re.compile(r"\s*(==|!=|<=|>=|!~|=|<|>|~)\s*")
_FIELD = re.compile(r"[A-Za-z_][\w.\-]*")
_NUMBER = re.compile(r"([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?) ?([a-zA-Zµμ]*)")
_TIMES = {"": 1.0, "ns": 1.0, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "min": 6e10}
_AMOUNTS = {
    "": 1.0,
    "k": 1e3,
    "m": 1e6,
    "g": 1e9,
    "t": 1e12,
    "ki": 2.0**10,
    "mi": 2.0**20,
    "gi": 2.0**30,
    "ti": 2.0**40,
}
_DEEPEST = 50
_LONGEST = 10_000


class Where(Struct, frozen=True):
    """An expression that was understood; call it with a record.

    fields: what it asks for. equals: the fields that it compares by =, with the values.
    """

    text: str
    fields: frozenset[str]
    test: Test
    equals: tuple[tuple[str, str], ...] = ()

    def __call__(self, record: Record) -> bool:
        """Tell whether it holds for a record."""
        return self.test(record)

    @property
    def constant(self) -> bool:
        """Whether equal calls have equal answers, so that asking one of them is enough."""
        return not self.fields & fields.CHANGING


def where(*texts: str) -> Where:
    """Understand expressions that must all hold; none holds for every record.

    Raises BadInput that says where it went wrong, with the nearest field.
    """
    parsers = [_Parser(text) for text in texts if text.strip()]
    tests = [parser.whole() for parser in parsers]
    asked = frozenset(name for parser in parsers for name in parser.fields)
    equals = tuple(pair for parser in parsers for pair in parser.equals)
    text = " and ".join(parser.text for parser in parsers)
    if len(tests) == 1:
        return Where(text, asked, tests[0], equals)
    return Where(text, asked, lambda record: all(test(record) for test in tests), equals)


def filtered(records: Iterable[Record], *texts: str) -> Iterator[Record]:
    """Yield the records for which all expressions hold."""
    return filter(where(*texts), records)


def after_first(records: Iterable[Record], count: int) -> Iterator[Record]:
    """Leave out the first `count` executions of each call: they set up what others use.

    Each process has first calls of its own, and each of its threads where the trace tells them.

    Raises BadInput where `count` is negative. What is no execution passes.
    """
    if count < 0:
        raise BadInput(f"{count} calls cannot be skipped; give 0 or more")
    return _after_first(records, count) if count else iter(records)


def _after_first(records: Iterable[Record], count: int) -> Iterator[Record]:
    seen: dict[tuple[str, int | None, int | None, str], int] = {}
    for record in records:
        if record.executed:
            which = (record.source, record.process, record.thread, record.key)
            so_far = seen.get(which, 0)
            if so_far < count:
                seen[which] = so_far + 1
                continue
        yield record


def grouping(text: str) -> tuple[str, ...]:
    """Understand `--group-by operation,shape`; raises BadInput with the nearest field."""
    names = tuple(fields.known(part) for part in text.split(",") if part.strip())
    if not names:
        raise BadInput("nothing to group by", "such as operation,shape")
    return tuple(dict.fromkeys(names))


class _Parser:
    """Reads one expression from left to right."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.fields: list[str] = []
        self.equals: list[tuple[str, str]] = []
        self._joined = ""  # the word of the language that came last
        if len(text) > _LONGEST:
            raise BadInput(f"the expression has {len(text)} characters; {_LONGEST} are allowed")

    def whole(self) -> Test:
        test = self.any()
        if self.at < len(self.text):
            raise self.wrong("and, or, or the end")
        return test

    def wrong(self, needed: str) -> BadInput:
        rest = self.text[self.at : self.at + 30]
        seen = f"stands {rest!r}" if rest else "it ends"
        return BadInput(
            f"in --where {self.text!r}: {needed} is needed where {seen}",
            "such as operation=matmul and duration_ns>1000",
        )

    def blank(self) -> None:
        while self.text[self.at : self.at + 1].isspace():
            self.at += 1

    def word(self, word: str) -> bool:
        """Take a word of the language, if it comes next."""
        self.blank()
        end = self.at + len(word)
        behind = self.text[end : end + 1]
        if self.text[self.at : end].lower() != word or not (
            not behind or behind == "(" or behind.isspace()
        ):
            return False
        self.at, self._joined = end, word
        return True

    def any(self) -> Test:
        tests = [self.all()]
        while self.word("or"):
            tests.append(self.all())
        return tests[0] if len(tests) == 1 else lambda record: any(test(record) for test in tests)

    def all(self) -> Test:
        tests = [self.one()]
        while self.word("and"):
            tests.append(self.one())
        return tests[0] if len(tests) == 1 else lambda record: all(test(record) for test in tests)

    def one(self) -> Test:
        turned = False
        while self.word("not"):
            turned = not turned
        opens = self.text[self.at : self.at + 1] == "("
        test = self.inside() if opens else self.comparison()
        self.blank()
        return (lambda record: not test(record)) if turned else test

    def inside(self) -> Test:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise BadInput(f"the expression has more than {_DEEPEST} parentheses in each other")
        self.at += 1
        test = self.any()
        self.blank()
        if self.text[self.at : self.at + 1] != ")":
            raise self.wrong("')'")
        self.at += 1
        self.depth -= 1
        return test

    def comparison(self) -> Test:
        match = _FIELD.match(self.text, self.at)
        if match is None and self._joined and self.at == len(self.text):
            raise BadInput(f"in --where {self.text!r}: something is needed behind {self._joined!r}")
        if match is None:
            raise self.wrong("a field")
        name = fields.known(match[0])
        self.at = match.end()
        self.fields.append(name)
        sign = _SIGN.match(self.text, self.at)
        if sign is None:
            reader = fields.read(name)
            return lambda record: bool(reader(record))
        self.at = sign.end()
        value = self.value()
        if sign[1] in {"=", "=="}:
            self.equals.append((name, value))
        return _comparison(name, sign[1], value)

    def value(self) -> str:
        quote = self.text[self.at : self.at + 1]
        if quote in {"'", '"'}:
            end = self.text.find(quote, self.at + 1)
            if end < 0:
                raise self.wrong(f"a second {quote}")
            start, self.at = self.at + 1, end + 1
            return self.text[start:end]
        start, opened = self.at, 0
        while self.at < len(self.text) and not self.text[self.at].isspace():
            opened += {"(": 1, ")": -1}.get(self.text[self.at], 0)
            if opened < 0:
                break
            self.at += 1
        if start == self.at:
            raise self.wrong("a value")
        return self.text[start : self.at]


def _comparison(name: str, sign: str, value: str) -> Test:
    reader = fields.read(name)
    if sign in {"~", "!~"}:
        return _pattern(name, value, found=sign == "~")
    if value.lower() == "none" and sign in {"=", "==", "!="}:
        told = sign == "!="
        return lambda record: (reader(record) not in {None, ""}) is told
    if name in fields.TRUTHS:
        return _truth(name, sign, value)
    if name in fields.NUMBERS:
        return _number(reader, sign, _amount(name, value))
    if sign in {"=", "==", "!="}:
        same = sign != "!="
        return lambda record: (reader(record) == value) is same
    if "." in name:
        return _number(lambda record: _as_number(reader(record)), sign, _amount(name, value))
    raise BadInput(f"{name} holds a text, so {sign} means nothing", "compare it by =, !=, ~ or !~")


def _pattern(name: str, value: str, *, found: bool) -> Test:
    try:
        search = re.compile(value).search
    except (re.error, RecursionError, OverflowError) as error:
        raise BadInput(f"{value!r} is no regular expression: {error}") from None
    reader = fields.read_text(name)
    return lambda record: (search(reader(record)) is not None) is found


def _truth(name: str, sign: str, value: str) -> Test:
    words = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
    wanted = words.get(value.lower())
    if wanted is None or sign not in {"=", "==", "!="}:
        raise BadInput(f"{name} is true or false", f"write {name}=true, or not {name}")
    wanted = wanted is (sign != "!=")
    reader = fields.read(name)
    return lambda record: reader(record) is wanted


def _amount(name: str, value: str) -> float:
    match = _NUMBER.fullmatch(value)
    factor = None
    if match is not None:
        if name.endswith("_ns"):
            factor = _TIMES.get(match[2].lower())
        else:
            factor = _AMOUNTS.get(match[2].lower().removesuffix("b"))
    if match is None or factor is None:
        units = "ns, us, ms, s" if name.endswith("_ns") else "k, M, G, KiB, MiB, GiB"
        raise BadInput(f"{name} is a number, and {value!r} is none", f"units may be {units}")
    return float(match[1]) * factor


def _as_number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _number(reader: fields.Reader, sign: str, wanted: float) -> Test:
    compare: dict[str, Callable[[float], bool]] = {
        "=": lambda value: value == wanted,
        "==": lambda value: value == wanted,
        "!=": lambda value: value != wanted,
        "<": lambda value: value < wanted,
        "<=": lambda value: value <= wanted,
        ">": lambda value: value > wanted,
        ">=": lambda value: value >= wanted,
    }
    test, untold = compare[sign], sign == "!="

    def compared(record: Record) -> bool:
        value = reader(record)
        return untold if value is None else test(value)

    return compared
