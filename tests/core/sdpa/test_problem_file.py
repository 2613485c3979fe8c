"""Lists of problems in files: read as written, and refused with file and line."""

from __future__ import annotations

import os
import re
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.errors import BadInput
from mlbackends.sdpa.problem_text import Wording, read_file

if TYPE_CHECKING:
    from pathlib import Path

WORDINGS = st.builds(
    Wording,
    shape=st.tuples(*[st.integers(0, 64)] * 4),
    mask=st.sampled_from(["none", "causal", "bool", "float"]),
    backward=st.booleans(),
    seed=st.integers(0, 9),
)


@given(st.lists(WORDINGS, min_size=1, max_size=4))
def test_a_file_of_problems_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, found: list[Wording]
) -> None:
    path = tmp_path_factory.mktemp("problems") / "list.txt"
    path.write_text("".join(f"{problem.text}\n" for problem in found))

    assert read_file(str(path)) == tuple(found)


def test_what_stands_in_the_file_goes_before_what_is_given(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("# two\n\n--shape 1,1,4,4 --dtype float64  # this one\n--shape 1,1,4,8\n")

    found = read_file(str(path), {"dtype": ["float16"], "seed": ["3"]})

    assert [(problem.dtype, problem.seed) for problem in found] == [("float64", 3), ("float16", 3)]


def test_the_mark_at_the_head_of_a_file_from_windows_is_no_word(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes(b"\xef\xbb\xbf--shape 1,1,4,4\r\n")

    assert [problem.shape for problem in read_file(str(path))] == [(1, 1, 4, 4)]


def test_a_bad_line_is_told_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("--shape 1,1,4,4\n--shape 1,1,4,4 --sed 3\n")

    with pytest.raises(BadInput, match=r"list\.txt:2: .*'sed'") as caught:
        read_file(str(path))
    assert caught.value.hint == "did you mean 'seed'?"


@pytest.mark.parametrize("data", [b"", b"# nothing\n", b"\xff\xfe", b"--shape 1,1,1,1\n" * 100_000])
def test_a_file_that_is_no_list_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes(data)

    with pytest.raises(BadInput):
        read_file(str(path))


def test_a_file_that_is_too_large_is_not_blamed_for_where_its_reading_stopped(
    tmp_path: Path,
) -> None:
    path = tmp_path / "list.txt"
    path.write_text("# " + "é" * (1 << 20), "utf-8")

    with pytest.raises(BadInput, match=r"list\.txt is larger than 1 MiB"):
        read_file(str(path))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"none\.txt cannot be read: No such file or directory$"):
        read_file(str(tmp_path / "none.txt"))
    folder = re.escape(str(tmp_path))
    with pytest.raises(BadInput, match=f"^{folder} cannot be read: Is a directory$"):
        read_file(str(tmp_path))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFO among its files")
def test_what_another_program_writes_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("--shape 1,1,4,4\n",))
    writer.start()
    found = read_file(str(pipe))
    writer.join()

    assert [problem.shape for problem in found] == [(1, 1, 4, 4)]
