"""Every key of a TOML text has its line, as tomllib reads the keys; no text makes the scanner fail."""

from __future__ import annotations

import tomllib
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlbackends.audit.policy.lines import DEEPEST, TooDeep, lines_of

BLANK = st.sampled_from(["", " ", "\t", "  "])
NOISE = st.sampled_from(["", "\n", "# x = 1\n", '# """ [[rule]]\n', "\r\n", "  # '''\n"])
STRINGS = st.sampled_from(
    [
        '""',
        '"a # b"',
        r'"a \" = ] b"',
        "''",
        "'[[c]] \\'",
        '"""\none = 1\n[[rule]]\n"""',
        '"""a""b"""',
        '"""a"""""',
        r'"""\""" # \\"""',
        "'''\n[x]\n''y'''",
        "'''z'''''",
        '"é\\u00e9"',
    ]
)
SCALARS = st.one_of(
    STRINGS,
    st.sampled_from(
        [
            "1",
            "-0.5e3",
            "true",
            "0x1F",
            "1979-05-27 07:32:00",
            "1979-05-27",
            "inf",
            "1_000",
            "07:32:00",
        ]
    ),
)


@st.composite
def value(draw: st.DrawFn, depth: int = 0) -> str:
    """Draw a value: a scalar, a list over several lines, an inline table on one."""
    kind = draw(st.sampled_from(["scalar", "scalar", "list", "table"] if depth < 3 else ["scalar"]))
    if kind == "list":
        parts = draw(st.lists(value(depth + 1), max_size=3))
        gap = draw(st.sampled_from(["", "\n", " # ]\n", "\r\n  "]))
        comma = draw(st.sampled_from(["", ","])) if parts else ""
        return f"[{gap}" + f",{gap}".join(f"{part}{gap}" for part in parts) + f"{comma}{gap}]"
    if kind == "table":
        parts = draw(st.lists(value(depth + 1), max_size=3))
        return "{ " + ", ".join(f"{KEYS[i]} = {part}" for i, part in enumerate(parts)) + " }"
    return draw(SCALARS)


KEYS = ["plain", "with-dash", '"quo.ted"', "'lit # eral'", '"esc\\u0061ped"', '""']


@st.composite
def document(draw: st.DrawFn) -> str:
    """Draw a file: keys at the top, then tables, lists of tables, and tables inside them."""
    text = draw(NOISE)
    number = 0
    for section in range(draw(st.integers(0, 5))):
        head = draw(
            st.sampled_from(
                ["", "[[rule]]", "[[ rule ]]", "[[rule.deep]]", "[rule.own]", "[{}]", "[{}.sub]"]
            )
        )
        if head.startswith(("[rule", "[[rule.")):
            text += "[[rule]]\n"
        text += head.format(f"table{section}") + draw(st.sampled_from(["\n", " # x\n", "\r\n"]))
        if not head and number:
            text += f"[other{section}]\n"
        for _ in range(draw(st.integers(0, 4))):
            number += 1
            key = draw(st.sampled_from(["key{}", "key{}.part", '"key {}"', "'key{}'.\"a b\" . c"]))
            blank = draw(BLANK)
            text += f"{blank}{key.format(number)}{blank}={blank}{draw(value())}{blank}"
            text += draw(st.sampled_from(["\n", " # note = 1\n", "\r\n"])) + draw(NOISE)
    return text


def paths(value: Any, path: tuple[str | int, ...] = ()) -> set[tuple[str | int, ...]]:
    """Return the path of everything inside a value."""
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    found: set[tuple[str | int, ...]] = set()
    for key, each in inside:
        found |= {(*path, key)} | paths(each, (*path, key))
    return found


@given(document())
def test_the_keys_with_a_line_are_those_that_tomllib_finds(text: str) -> None:
    assert lines_of(text).keys() == paths(tomllib.loads(text))


@given(document())
def test_a_key_stands_on_its_line(text: str) -> None:
    written = text.replace("\r\n", "\n").split("\n")
    for path, line in lines_of(text).items():
        last = str(path[-1])
        if last.startswith("key"):
            assert last in written[line - 1]


def test_the_lines_of_rules_and_of_what_is_in_them() -> None:
    text = 'schema = 1\n\n[[rule]]\nid = "a"\none_of = [\n  1,\n  2,\n]\n[[rule]]\nid = "b"\n'

    lines = lines_of(text)

    assert lines["rule", 0] == 3
    assert lines["rule", 0, "one_of", 1] == 7
    assert lines["rule", 1, "id"] == 10


@given(st.text() | st.text(alphabet="[]{}.='\"\\#\n a1,"))
@example('a = """')
@example("a = [[[[")
@example("[[")
def test_no_text_makes_it_fail(text: str) -> None:
    with suppress(TooDeep):
        lines_of(text)


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 99, ".".join("a" * 99) + " = 1", "a = " + "{b = " * 99]
)
def test_what_is_too_deep_is_told_before_tomllib_sees_it(text: str) -> None:
    with pytest.raises(TooDeep) as told:
        lines_of(f"first = 1\n{text}")

    assert told.value.line == 2
    assert DEEPEST < 99
