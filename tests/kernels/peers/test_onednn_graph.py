"""oneDNN's fused attention as a peer, on libraries that stand for it: it is given what it should be."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from mlbackends.base import registry
from mlbackends.isolation.service import Lost, Service
from mlbackends.model.checked import Ended
from mlbackends.model.records import Presence, ProbeReport
from mlbackends.sdpa.explaining import explained
from mlbackends.sdpa.named_devices import device
from mlbackends.sdpa.problem_text import parse
from mlbackends.sdpa.verify import peer as peer_module
from mlbackends.sdpa.verify.processes import program_command
from mlbackends_kernels.peers.onednn_graph import PEER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import FakeLibrary

    from mlbackends.model.problem import AttentionProblem

NEWEST = ("MAJOR=3", "MINOR=13")
OLDER = ("MAJOR=3", "MINOR=6")


def problem_of(words: str) -> AttentionProblem:
    (wording,) = parse(words)
    return explained(wording, device("cpu")).problem


class Peer:
    """The peer's program, with one library."""

    def __init__(self, folder: Path, library: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        command = program_command(sys.executable, PEER.program, (str(library),))
        self.service = Service(command, {**os.environ, **environment}, str(folder / "errors"))

    def prepare(self, problem: AttentionProblem, **arrays: Any) -> dict[str, Any]:
        files = {name: str(self.folder / name) for name in arrays}
        for name, array in arrays.items():
            array.tofile(files[name])
        told = {"do": "prepare", "problem": msgspec.to_builtins(problem), "files": files}
        return self.service.send(told, 60)

    def compute(self, timeout: float = 60) -> Any:
        path = self.folder / "result"
        self.service.send({"do": "compute", "into": str(path)}, timeout)
        return np.fromfile(path, "f4")


@pytest.fixture
def peer(tmp_path: Path, fake_library: FakeLibrary) -> Iterator[Callable[..., Peer]]:
    """Start the peer's program with a library of a release."""
    started: list[Peer] = []

    def start(defines: tuple[str, ...] = NEWEST, **environment: str) -> Peer:
        library = fake_library("onednn_graph", "libdnnl.so.3", defines=defines)
        started.append(Peer(tmp_path, library, environment))
        return started[-1]

    yield start
    for each in started:
        each.service.stop()


def inputs(problem: AttentionProblem) -> dict[str, Any]:
    """Return numbers for each tensor, as its memory has them one after the other."""
    random = np.random.default_rng(0)
    named = {"query": problem.query, "key": problem.key, "value": problem.value}
    found: dict[str, Any] = {
        name: random.standard_normal(spec.elements, "f4") for name, spec in named.items()
    }
    if problem.mask is not None:
        shown = random.random(problem.mask.elements) < 0.75
        numbers = random.standard_normal(problem.mask.elements, "f4")
        found["mask"] = shown if problem.mask.dtype == "bool" else numbers
    return found


def right(problem: AttentionProblem, arrays: dict[str, Any]) -> Any:
    """Return what our plain formula makes of it in float64, as one row of numbers."""
    shaped = []
    for name in ("query", "key", "value", "mask")[: 4 if problem.mask else 3]:
        spec = getattr(problem, name)
        steps = [stride * arrays[name].itemsize for stride in spec.strides]
        shaped.append(np.lib.stride_tricks.as_strided(arrays[name], spec.shape, steps))
    exact = msgspec.structs.replace(problem, inner_dtype="float64")
    return registry.load("mlbackends_kernels", "math").attend(exact, *shaped)[0].reshape(-1)


@pytest.mark.parametrize(
    "words",
    [
        "--shape 2,3,5,8",
        "--shape 2,3,5,8 --kv-len 7 --value-dim 4 --layout bshd",
        "--shape 1,2,6,8 --causal",
        "--shape 2,3,5,8 --mask bool",
        "--shape 2,3,5,8 --mask float --scale 0.5",
        "--shape 2,3,5,8 --mask 2,3,5,5",
        "--shape 2,6,5,8 --kv-heads 2 --gqa --layout bshd",
        "--shape 2,6,5,8 --kv-heads 3 --gqa --mask 2,6,5,5",
        "--shape 2,6,5,8 --kv-heads 2 --gqa --causal",
    ],
)
def test_every_layout_mask_and_group_reaches_it_as_it_is(
    peer: Callable[..., Peer], words: str
) -> None:
    problem = problem_of(words)
    arrays = inputs(problem)
    started = peer()

    assert PEER.unsupported_reasons(problem) == ()
    started.prepare(problem, **arrays)
    np.testing.assert_allclose(started.compute(), right(problem, arrays), rtol=1e-5, atol=1e-6)


def test_it_tells_release_runtime_and_kernel(peer: Callable[..., Peer]) -> None:
    problem = problem_of("--shape 1,1,4,8")
    told = peer().prepare(problem, **inputs(problem))["details"]

    assert told == {
        "version": "3.13.0",
        "runtime": "OpenMP",
        "partitions": "1",
        "kernel": "fake_kernel_t",
        **({"threads": told["threads"]} if "threads" in told else {}),
    }


def test_a_row_that_sees_no_key_is_zero_where_the_release_can(peer: Callable[..., Peer]) -> None:
    problem = problem_of("--shape 1,1,2,4 --mask bool")
    arrays = {**inputs(problem), "mask": np.array([False, False, True, True])}
    newest, older = peer(), peer(("MAJOR=3", "MINOR=7"))
    newest.prepare(problem, **arrays)
    older.prepare(problem, **arrays)

    assert not newest.compute()[:4].any()
    assert np.isnan(older.compute()[:4]).all()


def test_a_causal_mask_may_end_in_the_lower_right_corner(peer: Callable[..., Peer]) -> None:
    problem = problem_of("--shape 1,2,3,8 --kv-len 7 --causal")
    problem = msgspec.structs.replace(problem, lower_right=True)
    arrays = inputs(problem)
    started = peer()
    started.prepare(problem, **arrays)

    np.testing.assert_allclose(started.compute(), right(problem, arrays), rtol=1e-5, atol=1e-6)


def refused(peer: Peer, words: str) -> Lost:
    problem = problem_of(words)
    with pytest.raises(Lost) as caught:
        peer.prepare(problem, **inputs(problem))
    return caught.value


def test_what_is_cut_into_partitions_is_refused(peer: Callable[..., Peer]) -> None:
    why = refused(peer(FAKE_PARTITIONS="3"), "--shape 1,1,4,8")

    assert (why.ended, why.reason.code) == (Ended.CANNOT, "library-refuses")
    assert "oneDNN 3.13.0 cuts it into 3 partitions" in why.reason.message


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--shape 1,2,4,8 --value-dim 4", "not as wide as the query; 3.8 is needed"),
        ("--shape 1,2,4,8 --mask 1,2,4,4", "a mask of [1, 2, 4, 4] as one of [1, 1, ...]"),
        ("--shape 2,2,4,8 --causal", "a mask of [1, 1, 4, 4] as one of [2, 1, ...]"),
        ("--shape 1,2,4,0 --scale 1", "a dimension of 0"),
    ],
)
def test_what_an_older_release_gets_wrong_is_refused(
    peer: Callable[..., Peer], words: str, said: str
) -> None:
    assert said in refused(peer(OLDER), words).reason.message


def test_after_a_refusal_it_computes_the_next_problem(peer: Callable[..., Peer]) -> None:
    started = peer(OLDER)
    refused(started, "--shape 1,2,4,8 --value-dim 4")
    problem = problem_of("--shape 1,2,4,8")
    started.prepare(problem, **inputs(problem))

    assert started.compute().size == 64


@pytest.mark.parametrize(
    ("behaviour", "ended", "said"),
    [
        ("abort", Ended.CRASHED, "SIGABRT"),
        ("hang", Ended.TIMED_OUT, "did not answer within 3 s"),
        ("fail", Ended.RAISED, "execute returned 5 (runtime error)"),
    ],
)
def test_a_library_that_fails_is_told_as_what_it_did(
    peer: Callable[..., Peer], behaviour: str, ended: Ended, said: str
) -> None:
    problem = problem_of("--shape 1,1,4,8")
    started = peer(FAKE_BEHAVIOUR=behaviour)
    started.prepare(problem, **inputs(problem))
    with pytest.raises(Lost) as caught:
        started.compute(timeout=3 if behaviour == "hang" else 60)

    assert caught.value.ended is ended
    assert said in str(caught.value)


# ---- whether it is here ------------------------------------------------------------


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have the survey find some libraries, and none of this machine."""

    def found(*libraries: Path) -> None:
        folders = [str(each.parent) for each in libraries]
        monkeypatch.setenv("LD_LIBRARY_PATH", ":".join(folders))
        survey = peer_module._report.__wrapped__

        def limited(probe: str, python: str, depth: Presence = Presence.FOUND) -> ProbeReport:
            report = survey(probe, python, depth)
            here = [each for each in report.libraries if os.path.dirname(each.path) in folders]
            return msgspec.structs.replace(report, libraries=tuple(here))

        monkeypatch.setattr(peer_module, "_report", cache(limited))

    return found


def test_a_release_without_graphs_is_told_by_its_file(
    only: Callable[..., None], fake_library: FakeLibrary
) -> None:
    only(fake_library("onednn_graph", "libdnnl.so.2", defines=("MAJOR=2", "MINOR=7", "NO_GRAPH")))
    (reason,) = PEER.why_missing()

    assert reason.code == "missing-part"
    assert (
        "libdnnl.so.2 has no dnnl_graph_compiled_partition_execute, which it calls"
        in reason.message
    )
    assert "--python EXE" in reason.hint and "paddlepaddle" in reason.hint


def test_a_copy_that_crashes_when_it_is_asked_says_so(
    only: Callable[..., None], fake_library: FakeLibrary
) -> None:
    source = (
        "int dnnl_graph_compiled_partition_execute(void) { return 3; }"
        "void *dnnl_version(void) { __builtin_trap(); }"
    )
    only(fake_library("crashing_onednn", "libdnnl.so.3", source=source))
    (reason,) = PEER.why_missing()

    assert reason.code == "crashed"
    assert PEER.library() == ""


def test_openmp_goes_before_other_runtimes_and_the_newest_before_older_ones(
    only: Callable[..., None], fake_library: FakeLibrary
) -> None:
    newest = fake_library(
        "onednn_graph", "libdnnl.so.3", defines=("MAJOR=3", "MINOR=14", "RUNTIME=4")
    )
    older = fake_library("onednn_graph", "libdnnl.so.3", defines=("MAJOR=3", "MINOR=9"))
    wanted = fake_library("onednn_graph", "libdnnl.so.3", defines=("MAJOR=3", "MINOR=12"))
    only(newest, older, wanted)

    assert PEER.why_missing() == ()
    assert PEER.library() == str(wanted)
