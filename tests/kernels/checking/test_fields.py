"""A check of windows, caps, sinks, packed sequences and pages: right results pass, others do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from mlbackends.base import registry
from mlbackends.model.records import Device
from mlbackends.sdpa.problem_text import parse
from mlbackends_kernels.checking.ours import Ours
from mlbackends_kernels.checking.values import Values

if TYPE_CHECKING:
    from pathlib import Path

MATH = registry.load("mlbackends_kernels", "math").Math()
PROBLEMS = (
    "--shape 2,4,20,8 --window 3,1 --softcap 2 --sinks --backward",
    (
        "--shape 1,4,20,8 --kv-heads 2 --gqa --query-lengths 12,0,8 --key-lengths 9,4,30 --sinks"
        " --mask lower-right --backward"
    ),
    "--shape 3,4,2,8 --page-size 4 --key-lengths 19,0,7 --mask lower-right --sinks --layout bshd",
    "--shape 1,4,9,8 --page-size 4 --query-lengths 1,8 --key-lengths 19,8",
)


class Check:
    """One problem as `sdpa check` has it computed and judged, in this process."""

    def __init__(self, text: str, folder: Path) -> None:
        (wording,) = parse(text)
        problem = wording.problem(Device("cpu", 0))
        self.values = Values(problem, str(folder), seed=3)
        self.path = str(folder / "result.bin")
        self.request: dict[str, Any] = {
            "problem": msgspec.to_builtins(problem),
            "files": self.values.files,
            "grad_out": msgspec.to_builtins(self.values.grad_out),
        }

    def judged(self) -> dict[str, dict[str, Any]]:
        """Return the errors of `math` for the files as they are."""
        ours = Ours(MATH, self.request)
        ours.warm()
        ours.before()
        ours.save(ours.call(), self.path)
        return self.values.judge_files(self.path, tolerance=1.0)

    def change(self, name: str, dtype: str, change: Any) -> None:
        """Write a file of an input anew, behind the back of who knows what is right."""
        array = np.fromfile(self.values.files[name], dtype)
        change(array).astype(dtype).tofile(self.values.files[name])


def right(errors: dict[str, Any]) -> bool:
    return not errors["misplaced"] and errors["largest_absolute"] <= errors["largest_allowed"]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("text", PROBLEMS)
def test_what_is_right_passes(text: str, dtype: str, tmp_path: Path) -> None:
    found = Check(f"{text} --dtype {dtype}", tmp_path).judged()

    assert all(map(right, found.values()))
    backward = {"query", "key", "value", "sinks"} if "--backward" in text else set()
    assert found.keys() == {""} | backward


@pytest.mark.parametrize("text", PROBLEMS[:3])
def test_a_sink_that_does_not_count_is_found(text: str, tmp_path: Path) -> None:
    check = Check(text, tmp_path)
    check.change("sinks", "float32", lambda array: array - 9)

    assert not any(map(right, check.judged().values()))


@pytest.mark.parametrize("text", PROBLEMS[2:])
def test_pages_in_another_order_are_found(text: str, tmp_path: Path) -> None:
    check = Check(text, tmp_path)
    check.change("page_table", "int32", lambda array: array[::-1])

    assert not right(check.judged()[""])


def test_no_two_sequences_share_a_page_and_they_are_in_no_order(tmp_path: Path) -> None:
    check = Check("--shape 2,1,1,8 --page-size 2 --key-lengths 40,23", tmp_path)
    first, second = np.fromfile(check.values.files["page_table"], "int32").reshape(2, 20)

    used = [*first, *second[:12]]
    assert sorted(used) == list(range(32))
    assert used != sorted(used)
    assert not second[12:].any()
