"""Every key of a policy file has its line, and no text keeps the reader busy."""

from __future__ import annotations

import time
import tomllib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlbackends.audit.policy.reader import parsed
from mlbackends.base.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mlbackends.base.toml_document import Path

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
            st.sampled_from(["", "[[rule]]", "[[ rule ]]", "[[rule.deep]]", "[rule.own]", "[{}]", "[{}.sub]"])
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


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yield the path of everything inside a value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inside:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from paths(item, (*path, key))


def line(text: str, path: Path) -> int:
    return parsed(text.encode(), "policy.toml", "").place(path).line


@settings(max_examples=25, deadline=None)
@given(document())
def test_a_key_stands_on_its_line(text: str) -> None:
    written = text.replace("\r\n", "\n").split("\n")
    for path in paths(tomllib.loads(text)):
        last = str(path[-1])
        if last.startswith("key"):
            assert last in written[line(text, path) - 1]


def test_the_lines_of_rules_and_of_what_is_in_them() -> None:
    text = 'schema = 1\n\n[[rule]]\nid = "a"\none_of = [\n  1,\n  2,\n]\n[[rule]]\nid = "b"\n'

    assert line(text, ("rule", 0)) == 3
    assert line(text, ("rule", 0, "one_of", 1)) == 7
    assert line(text, ("rule", 0, "nothing")) == 3
    assert line(text, ("rule", 1, "id")) == 10


@pytest.mark.parametrize(
    "text",
    [
        "schema = 1\n[[rule]]\nmin = 1\nid = \"a\"\n[[rule]]\n  id='b'\n",
        'schema = 1\n[[rule]]\nwhy = """\nid = "x"\n"""\nid = "a"\n[[rule]]\nid = "b"\n',
        'schema = 1\n[[rule]]\n"id" = "a"\n[[rule]]\nid = "b"\n',
        'schema = 1\n[["rule"]]\n"id" = "a"\nwhy = """\n[[rule]]\n"""\n[[rule]]\nid = "b"\n',
        'schema = 1\n[[rule]]\nwhy = "\x85 \u2028"\nid = "a"\n[[rule]]\nid = "b"\n',
        'rule = [{ id = "a" },\n { id = "b" }]\n',
        '[[rule]]\r\nid = "a"\r\n\r\n[[rule]]\r\nid = "b"\r\n',
    ],
)
def test_the_id_of_a_rule_has_its_line_however_it_is_written(text: str) -> None:
    written = text.replace("\r\n", "\n").split("\n")
    for number, name in enumerate(("a", "b")):
        found = written[line(text, ("rule", number, "id")) - 1]
        assert "id" in found and name in found


def test_an_example_in_a_text_costs_no_time() -> None:
    rules = "".join(f'[[rule]]\nid = "r{number}"\n' for number in range(300))
    document = parsed(f'{rules}why = """\n[[rule]]\n"""\n'.encode(), "policy.toml", "")

    start = time.process_time()
    lines = [document.place(("rule", number, "id")).line for number in range(300)]

    assert lines == list(range(2, 602, 2))
    assert time.process_time() - start < 1


@settings(deadline=None)
@given(st.text() | st.text(alphabet="[]{}.='\"\\#\n a1,"))
@example('a = """')
@example("a = [[[[")
@example("[[")
def test_any_text_is_a_policy_or_is_refused(text: str) -> None:
    with suppress(BadInput):
        parsed(text.encode("utf-8", "surrogatepass"), "policy.toml", "")


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 99 + "]" * 99,
        "a = " + "{b = " * 99 + "1" + "}" * 99,
        ".".join("a" * 99) + " = 1",
        ".".join(["'a.b'"] * 99) + " = 1",
        "[" + " . ".join("a" * 99) + "]",
        "a = { " + ".".join("b" * 99) + " = 1 }",
    ],
)
def test_what_is_nested_deeply_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(BadInput, match=r"^policy\.toml:2: .*nested more than"):
        parsed(f"first = 1\n{text}".encode(), "policy.toml", "")


@pytest.mark.parametrize(
    "text",
    [
        ".".join("a" * 400_000) + " = 1",
        "a = " + "[" * 400_000,
        "a" * 1_000_000,
        ',"' * 300_000,
        "a = " + "[" * 5000 + "]" * 5000,
    ],
)
def test_a_hostile_text_does_not_keep_us_busy(text: str) -> None:
    start = time.process_time()
    with pytest.raises(BadInput):
        parsed(text.encode(), "policy.toml", "")
    assert time.process_time() - start < 10
