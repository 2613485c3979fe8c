"""JAX's attention as a peer, by a JAX that is installed, on the CPU."""

from __future__ import annotations

import json
import runpy
from types import SimpleNamespace
from typing import TYPE_CHECKING

import msgspec
import pytest

from mlbackends.model.records import Device
from mlbackends.sdpa.problem_text import parse
from mlbackends_kernels.checking import program
from mlbackends_kernels.checking.values import responder

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("jax")


@pytest.mark.parametrize(
    "words",
    ["--causal", "--mask bool", "--mask float:2,1,9,9", "--kv-heads 2 --gqa",
     "--layout bshd --backward", "--dtype bfloat16 --backward"],
)  # fmt: skip
def test_jax_is_called_as_it_is_documented(words: str, tmp_path: Path) -> None:
    made = SimpleNamespace(**runpy.run_path(program("jax_program")))
    answer, values = made.serving.responder(made.Jax), responder()
    (wording,) = parse(f"--shape 2,4,9,16 {words}")
    problem = json.loads(msgspec.json.encode(wording.problem(Device("cpu", 0))))
    path = str(tmp_path / "result.bin")
    files = values({"do": "prepare", "problem": problem, "folder": str(tmp_path), "seed": 0})
    assert answer({"do": "prepare", "problem": problem, **files})["details"]["implementation"] == "xla"
    answer({"do": "compute", "into": path})
    timed = answer({"do": "time", "seconds": 1e-6, "calls": 1})
    assert timed["timed_by"].startswith("the host's clock")
    found = values({"do": "judge", "path": path, "tolerance": 3.0})
    assert set(found) == ({"", "query", "key", "value"} if "--backward" in words else {""})
    for errors in found.values():
        assert errors["largest_absolute"] <= errors["largest_allowed"]
