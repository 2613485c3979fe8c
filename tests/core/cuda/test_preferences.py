"""Preferred libraries and workspaces: torch's functions, and state that an error leaves alone."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.cuda import preferences
from mlbackends.cuda.preferences import (
    _BlasBackend,
    _LinalgBackend,
    _ROCmFABackend,
    blas_workspace_size,
    cublas_workspace_size,
    cublaslt_workspace_size,
    preferred_blas_library,
    preferred_linalg_library,
    preferred_rocm_fa_library,
)
from mlbackends.switches import store

if TYPE_CHECKING:
    from collections.abc import Iterator

SWITCHES = (
    "cuda.preferred_linalg_library",
    "cuda.preferred_blas_library",
    "cuda.preferred_rocm_fa_library",
    "cuda.cublas_workspace_size",
    "cuda.cublaslt_workspace_size",
)


@pytest.fixture(autouse=True)
def as_at_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test starts from the defaults, on a machine without a device, with nothing installed."""
    monkeypatch.setattr(preferences, "_warned", set())
    monkeypatch.setattr("mlbackends.libraries.cuda.in_process.capability", lambda _: None)
    monkeypatch.delenv("TORCH_CUBLASLT_UNIFIED_WORKSPACE", raising=False)
    installed(monkeypatch)
    with store.restored(*SWITCHES):
        store.write_all(dict(zip(SWITCHES, ("default", "cublas", "default", None, None), strict=True)))
        yield


def installed(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(preferences, "_found_by_probe", lambda _, name: name in names)
    monkeypatch.setattr(preferences, "_installed", lambda name, _: name in names)


@pytest.mark.parametrize(
    ("word", "member"),
    [
        ("default", "Cublas"),
        ("cublas", "Cublas"),
        ("hipblas", "Cublas"),
        ("cublaslt", "Cublaslt"),
        ("hipblaslt", "Cublaslt"),
        (_BlasBackend.Default, "Cublas"),
        (_BlasBackend.Cublaslt, "Cublaslt"),
    ],
)
def test_a_word_or_a_member_chooses_the_blas(monkeypatch: pytest.MonkeyPatch, word: Any, member: str) -> None:
    installed(monkeypatch, "cublasLt")
    assert preferred_blas_library(word) is _BlasBackend[member]
    assert preferred_blas_library() is _BlasBackend[member]


def test_composable_kernel_is_accepted_and_warned_of_once() -> None:
    with pytest.warns(UserWarning, match="experimental"):
        assert preferred_blas_library("ck") is _BlasBackend.Ck
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        preferred_blas_library(_BlasBackend.Ck)


@pytest.mark.parametrize(
    ("function", "value", "what"),
    [
        (preferred_linalg_library, "cusolver", "cuSOLVER"),
        (preferred_linalg_library, _LinalgBackend.Cusolver, "cuSOLVER"),
        (preferred_blas_library, "cublaslt", "cuBLASLt"),
    ],
)
def test_a_library_that_is_not_installed_cannot_be_preferred(function: Any, value: Any, what: str) -> None:
    before = function()
    with pytest.raises(RuntimeError, match=f"Cannot set preferred backend to {what}"):
        function(value)
    assert function() is before


def test_magma_is_warned_of_and_needs_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(UserWarning, match="MAGMA"), pytest.raises(RuntimeError, match="to MAGMA"):
        preferred_linalg_library("magma")
    assert preferred_linalg_library() is _LinalgBackend.Default
    installed(monkeypatch, "magma")
    assert preferred_linalg_library("magma") is _LinalgBackend.Magma


def test_an_installed_solver_can_be_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "cusolver")
    assert preferred_linalg_library("cusolver") is _LinalgBackend.Cusolver
    assert preferred_linalg_library("default") is _LinalgBackend.Default


def test_attention_of_rocm_can_be_preferred_anywhere() -> None:
    assert preferred_rocm_fa_library("aotriton") is _ROCmFABackend.AOTriton
    assert preferred_rocm_fa_library(_ROCmFABackend.Ck) is _ROCmFABackend.Ck


def test_a_size_is_set_and_returned() -> None:
    assert cublas_workspace_size(1 << 24) == cublas_workspace_size() == 1 << 24
    assert cublaslt_workspace_size(4096) == cublaslt_workspace_size() == 4096
    assert cublas_workspace_size(0) == 0


def test_cublaslt_has_no_more_than_cublas_unless_it_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cublas_workspace_size(1000)
    with pytest.warns(UserWarning, match="it gets 1000 bytes"):
        assert cublaslt_workspace_size() == 1000
    monkeypatch.setenv("TORCH_CUBLASLT_UNIFIED_WORKSPACE", "0")
    assert cublaslt_workspace_size() == 1 << 20


def test_a_backend_s_workspace_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "cublasLt")
    assert blas_workspace_size(4096, "cublaslt") == 4096
    assert blas_workspace_size(backend=_BlasBackend.Cublaslt) == cublaslt_workspace_size() == 4096
    assert blas_workspace_size(backend="hipblas") == 8519680
    preferred_blas_library("cublaslt")
    assert blas_workspace_size() == 4096


@pytest.mark.parametrize(
    ("backend", "fragment"),
    [
        ("ck", "CK backend does not use a workspace."),
        (_BlasBackend.Ck, "CK backend does not use a workspace."),
        ("bogus", "Unknown backend string. Choose from: default, cublas, hipblas, "),
        (3, "Unknown backend type."),
    ],
)
def test_a_backend_without_a_workspace_is_refused(backend: Any, fragment: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        blas_workspace_size(4096, backend)
    assert fragment in str(caught.value)
    assert cublas_workspace_size() == 8519680
