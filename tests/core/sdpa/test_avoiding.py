"""What switches off the numbers that torch is known to get wrong."""

from __future__ import annotations

import sys
import types

import pytest

import mlbackends
from mlbackends import cudnn
from mlbackends.base.errors import UnknownName
from mlbackends.sdpa import SDPBackend, avoiding
from mlbackends.sdpa.switches import allowed


@pytest.fixture
def old_cudnn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for a torch 2.13 with a cuDNN whose decode is wrong on Blackwell."""
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(__version__="2.13.0+cu130"))
    monkeypatch.setattr(cudnn, "version", lambda: 92000)


@pytest.mark.usefixtures("old_cudnn")
def test_the_kinds_of_the_reports_of_a_device_are_named() -> None:
    sources = {report.source for report in avoiding.torch_reports("b200")}

    assert "pytorch#193893" in sources
    assert "CUDNN_ATTENTION" in avoiding.known_wrong_kinds("b200")
    assert "MATH" not in avoiding.known_wrong_kinds("b200")
    assert "pytorch#193893" not in {report.source for report in avoiding.torch_reports("h100")}


@pytest.mark.usefixtures("old_cudnn")
def test_a_problem_of_each_report_about_attention_can_be_checked() -> None:
    problems = avoiding.reported_problems("b200")

    assert problems and {problem.device for problem in problems} == {"b200"}
    assert any(problem.shape[-2] == 1 for problem in problems)


def test_a_scope_leaves_out_what_is_known_to_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avoiding, "known_wrong_kinds", lambda: frozenset({"FLASH_ATTENTION"}))
    kinds = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    with mlbackends.sdpa_kernel(kinds, avoid_known_wrong=True):
        assert (allowed(SDPBackend.FLASH_ATTENTION), allowed(SDPBackend.MATH)) == (False, True)
    with mlbackends.sdpa_kernel(kinds):
        assert allowed(SDPBackend.FLASH_ATTENTION)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(UnknownName):
        avoiding.torch_reports("h300")
