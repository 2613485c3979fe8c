"""Node sets: what our limit, separators and errors add to ClusterShell."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlbackends.base.errors import BadInput
from mlbackends.fleet.nodesets import expanded, folded


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node[001-003,070],login1", ["login1", "node001", "node002", "node003", "node070"]),
        ("a b, c\n", ["a", "b", "c"]),
        ("a,,b,", ["a", "b"]),
        ("n[1-3] ! n2", ["n1", "n3"]),
        ("", []),
    ],
)
def test_blanks_and_commas_separate_names(text: str, names: list[str]) -> None:
    assert [*expanded(text)] == names


def test_of_many_ranges_the_first_are_shown() -> None:
    names = [f"n{number}" for number in range(0, 100, 2)]

    assert folded(names, 3) == "n[0,2,4] and 47 more"
    assert folded(["n1", "n2"], 3) == "n[1-2]"


@settings(max_examples=30)
@given(st.sets(st.from_regex(r"[\w.@:+][\w.@:+-]{0,8}", fullmatch=True).filter(str.isascii), max_size=12))
def test_folding_and_expanding_give_the_same_names(names: set[str]) -> None:
    text = folded(names)
    if "@" not in text:  # which names a group
        assert {*expanded(text)} == names


@pytest.mark.parametrize("text", ["n[1", "n]", "n[2-1]", f"n[{'0' * 5000}1-2]", "@nowhere:x"])
def test_what_is_not_a_node_set_is_an_error(text: str) -> None:
    with pytest.raises(BadInput, match="not a node set"):
        expanded(text)


@pytest.mark.parametrize(
    "text",
    [
        *("[1-99999999]", "n[1-999999,1-999999]", "n[1-2000]m[1-2000]", f"n[1-{10**40}]"),
        *("@x[1-99999999]", "n[1-99999999]!n1", "n[1-9999999/2]"),
    ],
)
def test_too_many_nodes_are_refused_before_they_are_created(text: str) -> None:
    with pytest.raises(BadInput, match="more than 1,000,000 nodes"):
        expanded(text)


@pytest.mark.parametrize("text", ["-oProxyCommand=x", "n1,-l", "n[1-3],-x[1-2]", "n1 --"])
def test_no_name_is_an_option_of_ssh(text: str) -> None:
    with pytest.raises(BadInput, match="ssh takes it as an option"):
        expanded(text)
