"""Markdown to be pasted into an issue: tables that hold together, and no text that means something."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from running import report

from mlbackends.base import registry
from mlbackends_cli.terminal import Page

if TYPE_CHECKING:
    from mlbackends.model.records import Report


def rendered(one: Report, **page: Any) -> str:
    return str(registry.load("mlbackends_cli.formats", "markdown").report(one, Page(**page)))


def cells(line: str) -> list[str]:
    """Split a row of a table as GitHub does: at each bar that no backslash stands before."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def tables(text: str) -> list[list[list[str]]]:
    found: list[list[list[str]]] = []
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if lines and lines[0].startswith("|"):
            found.append([cells(line) for line in lines])
    return found


MACHINE = report(
    cpu={"presence": "found", "facts": {"model_name": "Test CPU", "cores": 4, "threads": 8}},
    nvidia={
        "presence": "loadable",
        "version": "570.86",
        "devices": [
            {"kind": "cuda", "index": i, "name": "NVIDIA H200", "presence": "loadable"} for i in range(8)
        ],
        "warnings": [{"code": "ecc-errors", "message": "GPU 0 had errors", "hint": "reset it"}],
    },
    cudnn={
        "presence": "found",
        "version": "9.10",
        "libraries": [
            {
                "name": "cudnn",
                "path": "/x/libcudnn.so.9",
                "found_by": "loader cache",
                "reasons": [{"code": "dlopen-failed", "message": "it does not open"}],
            }
        ],
        "reasons": [{"code": "dlopen-failed", "message": "it does not open", "hint": "install"}],
    },
    numpy={"presence": "found", "version": "2.4.6"},
    mkl={"presence": "absent", "reasons": [{"code": "not-found", "message": "looked in /x"}]},
    openmp={"presence": None, "failure": {"message": "KeyError: 'x'"}},
)


def test_a_library_has_rung_version_place_and_reason_in_its_row() -> None:
    rows = [row for table in tables(rendered(MACHINE)) for row in table]

    assert ["✗ broken", "cudnn", "9.10", "/x/libcudnn.so.9", "it does not open"] in rows
    assert [
        "? could not be determined",
        "openmp",
        "",
        "",
        "could not be determined: KeyError: 'x'",
    ] in rows


@pytest.mark.parametrize("details", [False, True])
def test_every_row_has_as_many_cells_as_its_head(details: bool) -> None:
    found = tables(rendered(MACHINE, details=details))

    assert found
    assert all(len({len(row) for row in table}) == 1 for table in found)
    assert all(set(table[1]) == {"---"} for table in found)


def test_details_have_facts_devices_and_every_copy() -> None:
    rows = [row for table in tables(rendered(MACHINE, details=True)) for row in table]
    text = rendered(MACHINE, details=True)

    assert ["`model_name`", "`Test CPU`"] in rows
    assert ["`found_by`", "`loader cache`"] in rows
    assert "### ✗ `/x/libcudnn.so.9`" in text
    assert text.count("### ◐ cuda ") == 8
    assert "looked in /x" in text


def test_a_fact_that_is_a_list_of_records_is_a_table() -> None:
    caches = [{"level": 1, "size_bytes": 32768}, {"level": 2, "ways": 8}]
    found = tables(rendered(report(cpu={"presence": "found", "facts": {"caches": caches}}), details=True))

    assert found == [
        [
            ["level", "size\\_bytes", "ways"],
            ["---", "---", "---"],
            ["`1`", "`32 KiB`", ""],
            ["`2`", "", "`8`"],
        ]
    ]


HOSTILE = "a|b\nc `d` ``e`` <img src=x> <details> [l](http://x) ![i](y) *s* _u_ \\ @who #12 \x00\x1b\u202e"


@pytest.mark.parametrize("details", [False, True])
def test_hostile_text_neither_breaks_a_table_nor_means_anything(details: bool) -> None:
    reason = {"code": HOSTILE, "message": HOSTILE, "hint": HOSTILE}
    one = report(
        cpu={"presence": "found", "facts": {HOSTILE: HOSTILE, "rows": [{HOSTILE: HOSTILE}]}},
        cudnn={
            "presence": "loadable",
            "version": HOSTILE,
            "libraries": [{"name": "x", "path": HOSTILE, "reasons": [reason]}],
            "devices": [{"kind": "cuda", "index": 0, "name": HOSTILE, "capability": HOSTILE}],
            "reasons": [reason],
            "warnings": [reason],
        },
    )
    text = rendered(one, details=details)
    outside_code = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", re.sub(r"\\[\\`]", "", text))

    assert not set(text) & {"\x00", "\x1b", "\u202e"}
    assert all(len({len(row) for row in table}) == 1 for table in tables(text))
    assert "<" not in outside_code
    assert not re.search(r"(?<!\\)[\[\]`]", outside_code)
    assert not re.search(r"[@#]\w", outside_code)
    assert not re.search(r"(?<!\\)\*s|(?<!\\)_u", outside_code)


def test_an_endless_value_is_cut_and_says_how_long_it_was() -> None:
    one = report(cpu={"presence": "found", "facts": {"a": "x" * 100_000}})
    text = rendered(one, details=True)

    assert len(text) < 10_000 and "(100,000 characters in total)" in text
