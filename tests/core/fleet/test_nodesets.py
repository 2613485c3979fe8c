"""Node sets are written as ClusterShell writes them, and read back."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlbackends.base.errors import BadInput
from mlbackends.fleet.nodesets import expanded, folded


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("node[001-003,070],login1", ["node001", "node002", "node003", "node070", "login1"]),
        ("rack[1-2]n[1-2]", ["rack1n1", "rack1n2", "rack2n1", "rack2n2"]),
        ("a b,c", ["a", "b", "c"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("node7.example.org", ["node7.example.org"]),
        ("n[0000000009-0000000010]", ["n0000000009", "n0000000010"]),
        ("", []),
    ],
)
def test_a_node_set_is_expanded(text: str, names: list[str]) -> None:
    assert [*expanded(text)] == names


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["node002", "node001", "node003", "node070"], "node[001-003,070]"),
        (["n0", "n1", "n9", "n10", "n11"], "n[0-1,9-11]"),
        (["n098", "n099", "n100"], "n[098-100]"),
        (["n1.a.org", "n2.a.org", "login"], "n[1-2].a.org,login"),
        (["node7"], "node7"),
        ([], ""),
    ],
)
def test_names_are_folded(names: list[str], text: str) -> None:
    assert folded(names) == text


def test_of_many_ranges_the_first_are_shown() -> None:
    names = [f"n{number}" for number in range(0, 100, 2)]

    assert folded(names, 3) == "n[0,2,4] and 47 more"


NAMES = st.from_regex(r"[a-z]{1,3}-?[0-9]{0,4}[a-z]?(\.[a-z0-9]{1,3})?", fullmatch=True)


@settings(max_examples=30)
@given(st.lists(NAMES, max_size=12))
def test_folding_and_expanding_give_the_same_names(names: list[str]) -> None:
    assert {*expanded(folded(names))} == {*names}


@settings(max_examples=30)
@given(st.lists(st.integers(0, 2000), max_size=20), st.integers(1, 5))
def test_clustershell_reads_what_is_folded(numbers: list[int], width: int) -> None:
    clustershell = pytest.importorskip("ClusterShell.NodeSet")
    names = [f"n{number:0{width}}" for number in numbers]

    assert {*map(str, clustershell.NodeSet(folded(names) or None))} == {*names}


@pytest.mark.parametrize(
    "text",
    ["n[1", "n]", "n[[1]]", "n[]", "n[,]", "n[2-1]", "n[a-b]", "n[٣]", f"n[{'0' * 5000}1-2]"],
)
def test_what_is_no_node_set_is_an_error(text: str) -> None:
    with pytest.raises(BadInput, match=r"no node set|no list of numbers"):
        expanded(text)


@pytest.mark.parametrize(
    "text",
    [
        "[1-99999999]",
        "n[0-999999999999]",
        "n[1-999999,1-999999]",
        "n[1-2000]m[1-2000]",
        f"n[1-{10**40}]",
    ],
)
def test_too_many_nodes_are_refused_with_the_limit(text: str) -> None:
    with pytest.raises(BadInput, match="more than 1,000,000 nodes"):
        expanded(text)


@pytest.mark.parametrize(
    "text", ["@x[1-99999999]", "n[1-99999999]!n1", "@x[1-2000]y[1-2000]", "n[1-9999999/2]"]
)
def test_clustershell_is_not_asked_to_make_too_many_nodes(text: str) -> None:
    pytest.importorskip("ClusterShell.NodeSet")
    with pytest.raises(BadInput, match="more than 1,000,000 nodes"):
        expanded(text)


@settings(max_examples=60)
@given(
    st.lists(
        st.sampled_from(["n", "[", "]", "-", ",", " ", "0" * 70, "1", "9", "99999", "٣", "é", "_"])
    )
)
def test_any_text_is_a_node_set_or_is_refused(tokens: list[str]) -> None:
    text = "".join(tokens)
    with suppress(BadInput):
        names = expanded(text)
        assert not any(set("[], ") & {*name} for name in names)


def test_a_group_needs_clustershell() -> None:
    try:
        import ClusterShell  # noqa: F401
    except ImportError:
        with pytest.raises(BadInput, match="ClusterShell") as error:
            expanded("@compute")
        assert "mlbackends[fleet]" in error.value.hint
