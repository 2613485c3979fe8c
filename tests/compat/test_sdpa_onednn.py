"""oneDNN's fused attention as a peer of `sdpa check`, with real releases: right, or refused with a reason.

ONEDNN_GRAPH_PYTHON names an interpreter in whose environment there is one that fuses, such as that of the
wheel of paddlepaddle.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mlbackends.model.checked import Ended
from mlbackends.sdpa.problem_text import parse
from mlbackends.sdpa.verify.processes import Plan
from mlbackends.sdpa.verify.run import check
from mlbackends_kernels.peers.onednn_graph import PEER

if TYPE_CHECKING:
    from mlbackends.model.checked import Result

pytestmark = pytest.mark.torch

PYTHON = os.environ.get("ONEDNN_GRAPH_PYTHON", "")
GRID = [
    "--shape 1,8,96,64 --dtype float32,bfloat16,float16 --mask none,causal,bool,float",
    "--shape 2,4,33,24 --kv-len 57 --layout bshd",
    "--shape 2,4,33,24 --kv-len 57 --value-dim 40",
    "--shape 2,4,33,24 --mask 2,4,33,33",
    "--shape 2,8,40,32 --kv-heads 2 --gqa --layout bshd --mask none,causal,bool",
    "--shape 1,1,1,64 --kv-len 300",
]


@pytest.fixture(scope="module")
def python() -> str:
    if not PYTHON:
        pytest.skip("ONEDNN_GRAPH_PYTHON names no interpreter: it needs a wheel of 195 MB")
    return PYTHON


def checked(words: str, *pythons: str) -> list[tuple[str, Result]]:
    plan = Plan(names=("onednn_graph",), pythons=pythons, rounds=0)
    return [(each.text, each.results[0]) for each in check(parse(words), plan).problems]


@pytest.mark.parametrize("words", GRID)
def test_what_it_computes_is_right_and_what_not_is_refused(words: str, python: str) -> None:
    assert PEER.why_missing(python) == ()
    for text, result in checked(words, python):
        if result.ended is Ended.CANNOT:
            assert "oneDNN" in result.reasons[0].message, (text, result)
            continue
        assert result.ended is Ended.RAN and result.errors, (text, result)
        assert not result.errors.misplaced, (text, result)
        # Scores are rounded to 16 bits between its steps before 3.7; the plain formula keeps float32.
        assert result.errors.largest_absolute <= 8 * result.errors.largest_allowed, (text, result)


def test_the_easy_problem_is_one_partition_and_tells_its_kernel(python: str) -> None:
    ((_, result),) = checked("--shape 1,16,64,32", python)

    assert result.ended is Ended.RAN
    assert result.told["partitions"] == "1"
    assert result.told["kernel"].endswith("_kernel_t")
    assert result.told["runtime"]


def test_a_release_that_does_not_fuse_is_refused() -> None:
    if not PEER.library():
        pytest.skip("no oneDNN with graphs is installed here: it needs a wheel of 39 MB")
    ((_, result),) = checked("--shape 1,16,64,32")
    if result.ended is Ended.RAN:
        assert result.told["partitions"] == "1"
    else:
        assert result.ended is Ended.CANNOT
        assert "partitions" in result.reasons[0].message
