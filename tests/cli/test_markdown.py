"""Pieces of Markdown: whatever a text holds, it reads as itself."""

from __future__ import annotations

import pytest

from mlbackends_cli.text.markdown import code, fenced, literal, table


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a|b", "a\\|b"),
        ("[x](y)", "\\[x\\](y)"),
        ("<b>&amp;", "&lt;b&gt;&amp;amp;"),
        ("see https://a.example", "see https:\\//a.example"),
        ("www.a.example", "www\\.a.example"),
        ("@all", "@\u2060all"),
        ("as gh-12 and #3", "as gh-\u206012 and #\u20603"),
        ("two\nlines", "two lines"),
    ],
)
def test_a_text_means_nothing(text: str, written: str) -> None:
    assert literal(text) == written


def test_code_with_a_bar_is_escaped_in_a_table_alone() -> None:
    assert code("a | b") == "`a \\| b`"
    assert code("a | b", in_table=False) == "`a | b`"


@pytest.mark.parametrize(
    ("text", "written"), [("a`b", "``a`b``"), ("`", "`` ` ``"), ("``", "``` `` ```"), ("", "")]
)
def test_code_with_backticks_has_a_longer_fence(text: str, written: str) -> None:
    assert code(text) == written


def test_a_block_is_not_closed_by_what_it_holds() -> None:
    assert fenced("a ```` b", "sh") == "`````sh\na ```` b\n`````"


def test_a_column_in_which_nothing_is_said_is_left_out() -> None:
    assert table(("a", "b"), [("1", ""), ("2", "")]) == "| a |\n| --- |\n| 1 |\n| 2 |"
    assert table(("a",), []) == ""
