"""Who can take a problem: ours and torch's, on devices that are not here."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from mlbackends import cudnn
from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.loading import torch_builds
from mlbackends.sdpa import named_devices, rules
from mlbackends.sdpa.explaining import explain
from mlbackends.sdpa.problem_text import parse
from mlbackends.sdpa.rules import environment
from mlbackends.sdpa.rules.environment import release_of
from mlbackends.sdpa.rules.wheels import WHEELS
from mlbackends.sdpa.switches import SDPBackend
from mlbackends.switches import store

SHAPE = "--shape 2,8,1024,64 "


@pytest.mark.parametrize(
    ("line", "taken"),
    [
        ("--dtype float16 --device sm90", "CUDNN_ATTENTION"),
        ("--dtype float16 --device sm80", "FLASH_ATTENTION"),
        ("--dtype float16 --device sm120", "FLASH_ATTENTION"),
        ("--dtype float16 --device sm75", "EFFICIENT_ATTENTION"),
        ("--dtype float32 --device sm90", "EFFICIENT_ATTENTION"),
        ("--dtype float64 --device sm90", "MATH"),
        ("--device cpu:avx2", "FLASH_ATTENTION"),
        ("--device cpu --dropout 0.5", "MATH"),
        ("--device cpu --value-dim 32", "MATH"),
        ("--device cpu --mask float --backward", "FLASH_ATTENTION"),
        ("--device cpu --mask float --mask-gradient", "MATH"),
        ("--dtype float16 --device sm86 --shape 2,8,1024,200", "FLASH_ATTENTION"),
        ("--dtype float16 --device sm86 --shape 2,8,1024,200 --backward", "EFFICIENT_ATTENTION"),
        ("--dtype float16 --device sm80 --shape 2,8,1024,200 --backward", "FLASH_ATTENTION"),
    ],
)
def test_torch_would_take(line: str, taken: str) -> None:
    told = explain(parse(SHAPE + line)).problems[-1]

    assert told.torch_chosen == taken
    assert not told.torch_unknown_reason


def test_all_reasons_are_told_not_only_the_first() -> None:
    (told,) = explain(parse(SHAPE + "--device sm75 --dtype float32 --mask float --value-dim 32")).problems
    flash = next(verdict for verdict in told.torch_verdicts if verdict.backend == "FLASH_ATTENTION")

    assert {reason.code for reason in flash.reasons} == {
        "mask", "head-dim-differs", "wrong-capability", "wrong-dtype",
    }  # fmt: skip


def test_what_torch_does_elsewhere_is_said_not_to_be_known() -> None:
    (told,) = explain(parse(SHAPE + "--device gfx1100"), torch=("2.10",)).problems

    assert told.torch_chosen == ""
    assert told.torch_unknown_reason == "torch's rules for gfx1100 with torch 2.10 are not known"


def test_a_switch_that_is_off_is_a_reason_on_both_sides() -> None:
    with store.restored("cuda.math_sdp"):
        store.write("cuda.math_sdp", False)
        (told,) = explain(parse(SHAPE), ("math",)).problems

    assert not told.answered
    for verdicts in (told.verdicts, told.torch_verdicts):
        (math,) = [verdict for verdict in verdicts if verdict.answers_to == "MATH"]
        assert [reason.code for reason in math.reasons] == ["switched-off"]


def test_only_what_is_named_is_asked() -> None:
    (told,) = explain(parse(SHAPE), ("math",)).problems

    assert [verdict.backend for verdict in told.verdicts] == ["math"]


def verdict_of(line: str, backend: str) -> Any:
    explained = explain(parse(SHAPE + line)).problems[-1]
    verdicts = (*explained.verdicts, *explained.torch_verdicts)
    return next(verdict for verdict in verdicts if verdict.backend == backend)


@pytest.mark.parametrize(
    ("version", "basis", "state"),
    [
        ("2.13.0+cu130", "torch 2.13.0+cu130 is installed here", "warns"),
        ("2.14.1", "torch 2.14.1 is installed here", "warns"),
        ("2.15.0", "torch 2.15.0 is installed here", "refuses"),
        ("2.4.1", "torch 2.4.1 is installed here, whose rules are not recorded", "warns"),
    ],
)
def test_the_installed_torch_decides_which_rules_apply(
    monkeypatch: pytest.MonkeyPatch, version: str, basis: str, state: str
) -> None:
    """A key length of 64 more than a multiple of 128, with a cuDNN that is too old for it."""
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(__version__=version))
    monkeypatch.setattr(cudnn, "version", lambda: 92400)
    line = "--device h100 --kv-len 1088 --backward"
    explanation = explain(parse(SHAPE + line))
    verdict = verdict_of(line, "CUDNN_ATTENTION")

    assert explanation.torch_basis.startswith(basis)
    assert explanation.torch == ".".join(version.split(".")[:2]) or "not recorded" in basis
    assert explanation.problems[0].torch_cudnn == "9.24.0"
    assert verdict.usable == (state == "warns")
    if state == "warns":
        assert "pytorch#196678" in {report.source for report in verdict.known_wrong}
    else:
        assert "the key length is 64 more than a multiple of 128" in verdict.reasons[0].message
    for fine in ("--causal", "--kv-len 1152"):
        words = line.replace("--kv-len 1088", fine) if "kv" in fine else f"{line} {fine}"
        assert not verdict_of(words, "CUDNN_ATTENTION").known_wrong


def test_without_torch_the_assumed_release_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "installed_torch", lambda: "")
    assert environment.basis("") == "torch is not installed here; torch 2.15 is assumed"


def test_gradients_of_one_query_row_get_a_warning() -> None:
    line = "--device h100 --shape 2,8,1,64 --kv-len 128 --backward"
    verdict = verdict_of(line, "CUDNN_ATTENTION")

    assert verdict.usable and "cudnn-frontend#1072" in {report.source for report in verdict.known_wrong}
    assert not verdict_of(line.replace("--backward", ""), "CUDNN_ATTENTION").known_wrong


@pytest.mark.parametrize(
    ("torch", "cudnn_version", "line", "state"),
    [
        ((2, 13), 92000, "--device b200 --shape 2,8,1,64", "warns"),
        ((2, 13), 91900, "--device sm110 --shape 2,8,1,64", "warns"),
        ((2, 14), 92000, "--device b200 --shape 2,8,1,64", "refuses"),
        ((2, 15), 92500, "--device b200 --shape 2,8,1,64", "refuses"),
        ((2, 15), 92401, "--device b200 --shape 2,8,1,64", "fine"),
        ((2, 15), 92501, "--device b200 --shape 2,8,1,64", "fine"),
        ((2, 13), 91801, "--device b200 --shape 2,8,1,64", "fine"),
        ((2, 13), 92000, "--device h100 --shape 2,8,1,64", "fine"),
        ((2, 13), 92000, "--device b200 --shape 2,8,2,64", "fine"),
    ],
)
def test_one_query_row_on_blackwell_is_wrong_with_some_cudnn(
    torch: tuple[int, int], cudnn_version: int, line: str, state: str
) -> None:
    """Source: pytorch#193893; torch refuses it since pytorch#194927."""
    (wording,) = parse(f"--kv-len 128 {line}")
    problem = wording.problem(named_devices.device(wording.device).device)
    there = environment.Environment(torch=torch, cudnn_version=cudnn_version)
    kind = SDPBackend.CUDNN_ATTENTION
    reasons = [reason.message for reason in rules.why_not(kind, problem, there)]
    reports = [report.source for report in rules.wrong_numbers(kind, problem, there)]

    assert bool(reasons) == (state == "refuses")
    assert ("pytorch#193893" in reports) == (state == "warns")
    if reasons:
        assert "the result of a single query row can be wrong" in reasons[0]


def test_on_a_gpu_the_element_type_is_one_that_the_fast_backends_have() -> None:
    devices = "cpu,cpu:avx2,sm75,sm80,cuda:1,gfx942,mps"
    dtypes = [wording.dtype for wording in parse(SHAPE + f"--device {devices}")]

    assert dtypes == ["float32", "float32", "float16", *3 * ["bfloat16"], "float32"]
    for words in ("--device sm90", "--device sm90 --dtype float32", "--device cpu"):
        (wording,) = parse(SHAPE + words)
        assert parse(wording.text) == (wording,)


def test_a_wrong_backend_gets_the_nearest() -> None:
    with pytest.raises(UnknownName) as caught:
        explain(parse(SHAPE), ("maths",))
    assert "'math'" in caught.value.hint


def test_each_torch_that_is_named_answers_by_its_own_rules_and_its_own_cudnn() -> None:
    wordings = parse("--shape 2,8,1,64 --kv-len 128 --device b200")
    explanation = explain(wordings, torch=("2.13.0", "2.14", "2.15"))

    assert [problem.torch for problem in explanation.problems] == ["2.13.0", "2.14", "2.15"]
    assert [problem.torch_cudnn for problem in explanation.problems] == ["9.20.0", "9.24.0", "9.26.0"]
    cudnn = [
        next(verdict for verdict in problem.torch_verdicts if verdict.backend == "CUDNN_ATTENTION")
        for problem in explanation.problems
    ]
    assert [verdict.usable for verdict in cudnn] == [True, False, True]
    assert [bool(verdict.known_wrong) for verdict in cudnn] == [True, False, False]


def test_a_cudnn_that_is_named_takes_the_place_of_the_wheels() -> None:
    wordings = parse("--shape 2,8,1,64 --kv-len 128 --device b200")
    for release, is_wrong in (("9.18.1", False), ("9.19", True), ("9.24.1", False), ("9.25.0", True)):
        (problem,) = explain(wordings, torch=("2.13",), versions={"cudnn": release}).problems
        verdict = next(verdict for verdict in problem.torch_verdicts if verdict.backend == "CUDNN_ATTENTION")

        assert bool(verdict.known_wrong) is is_wrong, release
    with pytest.raises(BadInput, match="not a version of cuDNN"):
        explain(wordings, versions={"cudnn": "nine"})


def test_a_torch_without_recorded_rules_gets_those_of_the_nearest_and_that_is_said() -> None:
    explanation = explain(parse(SHAPE), torch=("1.0",))

    assert "rules of torch 1.0 are not recorded" in explanation.torch_basis


def test_scores_that_a_cache_holds_are_not_counted_as_moved() -> None:
    wordings = parse("--shape 2,8,1024,64 --shape 2,8,4096,64 --device h100")
    small, large = (problem.bound for problem in explain(wordings).problems)
    assert small and large

    assert small.math_bytes == 0 and small.math_seconds == small.seconds
    scores = 2 * 8 * 4096 * 4096 * 2
    assert large.math_bytes == 4 * (scores - (50 << 20))


# ---- versions beyond the rules of attention ----------------------------------------------------


@pytest.mark.parametrize(
    ("line", "torch", "versions", "notes"),
    [
        (
            "h100",
            "2.13",
            {},
            ["torch 2.13's wheel on PyPI is for CUDA 13.0, which needs driver 580 or newer"],
        ),
        (
            "h100",
            "2.10",
            {},
            ["torch 2.10's wheel on PyPI is for CUDA 12.8, which needs driver 525 or newer"],
        ),
        ("h100", "2.13", {"cuda": "12.6", "cudnn": "9.10"}, ["CUDA 12.6 needs driver 525 or newer"]),
        (
            "h100",
            "2.13",
            {"cuda": "14.1"},
            ["the driver that CUDA 14.1 needs is not recorded", "cuDNN 9.20.0 is"],
        ),
        ("v100", "2.13", {}, ["torch 2.13's wheel", "that wheel has no code for sm70"]),
        (
            "v100",
            "2.13",
            {"cuda": "12.6"},
            ["CUDA 12.6 needs", "cuDNN 9.20.0 is that of the wheel for CUDA 13.0"],
        ),
        ("b200", "2.7", {}, ["torch 2.7's wheel", "that wheel has no code for sm100"]),
        ("sm87", "2.13", {}, ["torch 2.13's wheel"]),
        ("gfx942", "2.13", {"rocm": "7.0"}, ["torch 2.13 is built with AOTriton 0.12 (pytorch#184288)"]),
        ("cpu:avx2", "2.13", {"driver": "550"}, []),
    ],
)
def test_what_assumed_versions_mean(
    line: str, torch: str, versions: dict[str, str], notes: list[str]
) -> None:
    (told,) = explain(parse(SHAPE + f"--device {line}"), (), (torch,), versions).problems

    assert len(told.version_notes) == len(notes)
    assert all(note.startswith(begins) for note, begins in zip(told.version_notes, notes, strict=True))


@pytest.mark.parametrize(
    ("versions", "is_refused"),
    [
        ({"driver": "570.211.01"}, True),
        ({"driver": "580"}, False),
        ({"driver": "570.211.01", "cuda": "12.8"}, False),
        ({"driver": "520.61", "cuda": "12.8"}, True),
        ({"driver": "600", "cuda": "14.0"}, False),
    ],
)
def test_a_driver_that_is_too_old_runs_nothing_of_torch(versions: dict[str, str], is_refused: bool) -> None:
    (told,) = explain(parse(SHAPE + "--device h100"), (), ("2.13",), versions).problems
    reasons = {reason.code for verdict in told.torch_verdicts for reason in verdict.reasons}

    assert reasons == ({"driver-too-old"} if is_refused else set())
    assert bool(told.torch_chosen) is not is_refused


def test_without_a_version_nothing_is_said_of_wheels() -> None:
    (told,) = explain(parse(SHAPE + "--device h100")).problems

    assert told.version_notes == ()


def test_the_wheels_are_of_the_cuda_that_the_table_of_builds_has() -> None:
    """wheels.json and loading/torch_builds.json were read in the same wheels, for different facts."""
    for build in torch_builds.builds():
        release = release_of(build.version)
        if f"{release[0]}.{release[1]}" == ".".join(build.version.split(".")[:2]):
            assert WHEELS[release].cuda.replace(".", "") == build.tag.removeprefix("cu"), build
