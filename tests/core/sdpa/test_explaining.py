"""Who can take a problem: ours and torch's, on devices that are not here."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from mlbackends import cudnn
from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.sdpa import named_devices, rules
from mlbackends.sdpa.explaining import explain
from mlbackends.sdpa.problem_text import parse
from mlbackends.sdpa.rules import environment
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
    (told,) = explain(parse(SHAPE + "--device gfx1102")).problems

    assert told.torch_chosen == ""
    assert "gfx1102" in told.torch_unknown_reason


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
