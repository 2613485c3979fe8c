"""What is refused before a program starts."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from mlbackends.base.errors import BadInput
from mlbackends.inject.start import needs_target, refuse
from mlbackends.inject.steps import plan
from mlbackends.inject.target import Target, Torch


def target(
    *parts: str,
    ignored_by: str = "",
    has_torch: bool = True,
    modules: tuple[str, ...] = (),
    version: str = "2.13.0",
) -> Target:
    torch = Torch("/site/torch", version, frozenset(parts))
    return Target("/bin/python", ignored_by, torch if has_torch else None, frozenset(modules))


def refused(values: dict[str, object], where: Target | None) -> str:
    """Return what is said, "" where nothing is."""
    try:
        refuse(values, plan(values), where)
    except BadInput as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("cuda.cublas_workspace_size", 1 << 20, "cuda"),
        ("cuda.cublaslt_workspace_size", 1 << 20, "cuda"),
        ("cudnn.benchmark_limit", 4, "cudnn"),
        ("mkldnn.allow_tf32", True, "xpu"),
        ("cuda.preferred_linalg_library", "magma", "cuda"),
    ],
)
def test_a_switch_needs_what_torch_was_built_with(name: str, value: object, part: str) -> None:
    assert "/site/torch is torch 2.13.0, which was not" in refused({name: value}, target())
    assert refused({name: value}, target(part)) == ""


@pytest.mark.parametrize(
    ("name", "value", "since", "older"),
    [
        ("cuda.matmul.prefer_cublaslt_grouped_gemm", True, "2.14", "2.13.0+cpu"),
        ("cuda.matmul.fp32_precision", "bfx9", "2.15", "2.14.1"),
        ("python_native.aot_disabled", True, "2.15", "2.14.1"),
        ("cuda.cublas_workspace_cache", True, "2.15", "2.14.1"),
    ],
)
def test_an_older_torch_lacks_what_came_later(name: str, value: object, since: str, older: str) -> None:
    for version in (f"{since}.0+cu132", f"{since}.0.dev20260901", ""):
        assert refused({name: value}, target("cuda", version=version)) == ""
    shown = refused({name: value}, target("cuda", version=older))
    assert f"needs torch {since} or newer; /site/torch is torch {older}" in shown
    assert refused({"cuda.matmul.fp32_precision": "tf32"}, target("cuda", version=older)) == ""


def test_of_a_torch_that_does_not_tell_its_parts_nothing_is_refused() -> None:
    unknown = Target("/bin/python", "", Torch("/site/torch", "", None), frozenset())
    assert refused({"cudnn.benchmark_limit": 4}, unknown) == ""


def test_without_torch_a_switch_that_torch_alone_obeys_is_refused() -> None:
    assert "no torch" in refused({"cudnn.benchmark": True}, target(has_torch=False))


def test_without_torch_our_own_switches_need_us() -> None:
    values: dict[str, object] = {"cuda.math_sdp": False}
    assert "no torch" in refused(values, target(has_torch=False))
    assert refused(values, target(has_torch=False, modules=("mlbackends",))) == ""


def test_a_library_needs_no_torch() -> None:
    values: dict[str, object] = {"mkl.num_threads": 2, "openmp.num_threads": "2"}
    assert refused(values, target(has_torch=False)) == ""
    assert not needs_target(values)


@pytest.mark.parametrize("name", ["cudnn.benchmark", "cuda.math_sdp", "cuda.cublas_workspace_size"])
def test_what_torch_obeys_needs_the_target(name: str) -> None:
    assert needs_target({name: 1})
    assert not needs_target({name: None})


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_a_python_that_passes_over_the_hook_is_refused(option: str) -> None:
    said = refused({"cudnn.benchmark": True}, target(ignored_by=option))
    assert f"python {option} ignores" in said
    assert "cudnn.benchmark" in said


def test_what_a_variable_carries_goes_without_the_hook() -> None:
    values: dict[str, object] = {"cuda.matmul.allow_tf32": True, "python_native.disabled": True}
    assert refused(values, target(ignored_by="-I")) == ""


def test_opt_einsum_must_be_there_to_be_switched_on() -> None:
    assert "needs opt_einsum" in refused({"opt_einsum.enabled": True}, target())
    assert refused({"opt_einsum.enabled": False}, target()) == ""
    assert refused({"opt_einsum.strategy": "greedy"}, target(modules=("opt_einsum",))) == ""


@pytest.mark.parametrize(
    ("machine", "word"),
    [("aarch64", "sve256"), ("ppc64", "vsx"), ("amd64", "avx512"), ("riscv64", "default")],
)
def test_an_instruction_set_of_another_architecture_is_refused_anywhere(
    machine: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform == "win32":
        names = ("Windows", "", "", "", machine)
        monkeypatch.setattr("mlbackends.host.windows.calls.names", lambda: names)
    else:
        monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine=machine))
    for other in {"avx512", "vsx", "sve256"} - {word}:
        assert f"on {machine} choose from" in refused({"cpu.capability": other}, None)
    assert refused({"cpu.capability": "default"}, None) == ""
    assert refused({"cpu.capability": word}, None) == ""


def test_none_asks_for_nothing() -> None:
    assert refused({"cudnn.benchmark_limit": None}, target(has_torch=False)) == ""
