"""python_native: the switches of DSLs, and which DSLs a machine can use."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import pytest

import mlbackends
from mlbackends import python_native
from mlbackends.host.host import Host
from mlbackends.switches import store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    FakeLibrary = Callable[..., Path]
    Machine = Callable[..., Host]

DRIVER = "usr/lib64/libcuda.so.1"
unavailable_reason = python_native.dsl_unavailable_reason


@pytest.fixture(autouse=True)
def everything_enabled() -> Iterator[None]:
    store.forget()
    yield
    store.forget()
    python_native.enable_operations("bmm", "topk")
    python_native.enable_dispatch_keys("CUDA", "CPU")
    for dsl in python_native.all_dsls:
        getattr(python_native, dsl).enable()


def test_a_controller_switches_its_dsl_and_no_other() -> None:
    python_native.triton.enabled = False

    assert python_native.is_dsl_disabled("triton")
    assert not python_native.is_dsl_disabled("cutedsl")
    python_native.triton.enabled = True
    assert not python_native.is_dsl_disabled("triton")


@pytest.mark.parametrize("before", [True, False])
def test_a_dsl_is_after_a_scope_as_it_was_before(before: bool) -> None:
    python_native.triton.enabled = before

    with python_native.triton.disabled():
        assert not python_native.triton.enabled

    assert python_native.triton.enabled is before


def test_operations_are_switched_off_and_on() -> None:
    python_native.disable_operations("bmm", "topk")
    python_native.enable_operations("topk")

    assert python_native.is_operation_disabled("bmm")
    assert not python_native.is_operation_disabled("topk")


def test_a_scope_restores_only_what_it_switched_off() -> None:
    python_native.disable_operations("bmm")

    with python_native.operations_disabled("bmm", "topk"):
        assert python_native.is_operation_disabled("topk")

    assert python_native.is_operation_disabled("bmm")
    assert not python_native.is_operation_disabled("topk")


def test_helion_alone_has_a_backend_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    assert python_native.helion.backend == "triton"
    monkeypatch.setenv("HELION_BACKEND", "cute")
    assert python_native.helion.backend == "cute"
    with pytest.raises(AttributeError, match="triton DSL has no configurable backend"):
        _ = python_native.triton.backend


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(AttributeError, match="did you mean 'triton'"):
        python_native.tritn  # type: ignore[attr-defined]  # noqa: B018


def test_a_controller_describes_its_dsl() -> None:
    triton = python_native.triton
    shown = "available" if triton.available else "unavailable"

    assert (triton.name, type(triton.available)) == ("triton", bool)
    assert repr(triton) == f"DSLController(triton, {shown}, enabled)"
    triton.disable()
    assert repr(triton) == f"DSLController(triton, {shown}, disabled)"


def test_after_disable_global_flags_only_the_assignment_is_refused() -> None:
    mlbackends.disable_global_flags()
    try:
        with pytest.raises(RuntimeError, match="not allowed to set triton DSL flags after disable"):
            python_native.triton.enabled = False
        assert not python_native.is_dsl_disabled("triton")
        with python_native.triton.disabled():
            assert python_native.is_dsl_disabled("triton")
        assert not python_native.is_dsl_disabled("triton")
    finally:
        store.forget()


@pytest.fixture
def machine(tmp_path: Path, fake_library: FakeLibrary) -> Machine:
    """Compose a machine of empty files, but for the driver; Python imports from /site."""

    def compose(*files: str) -> Host:
        host = of_files(tmp_path, *files)
        if DRIVER in files:
            shutil.copy(fake_library("computing_driver", "libcuda.so.1"), tmp_path / "root" / DRIVER)
        return host

    return compose


def of_files(folder: Path, *files: str) -> Host:
    for name in files:
        at = folder / "root" / name
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(b"")
    told = {
        "platform": "linux",
        "uname": {"machine": os.uname().machine},
        "python": {"executable": "/venv/bin/python", "path": ["/site"]},
    }
    (folder / "root").mkdir(exist_ok=True)
    (folder / "host.json").write_text(json.dumps(told))
    return Host(str(folder))


def triton(version: str, name: str = "triton") -> tuple[str, ...]:
    return (f"site/{name}-{version}.dist-info/METADATA", "site/triton/__init__.py")


@pytest.mark.parametrize("version", ["3.6.0", "3.7.1", "3.10.0", "3.6.0+git12ab", "3.6.0rc1"])
def test_triton_serves_from_3_6_on(machine: Machine, version: str) -> None:
    host = machine(*triton(version), DRIVER)

    assert unavailable_reason("triton", host) == ""


@pytest.mark.parametrize("version", ["3.5.1", "2.3.1", "4.0.0", "unknown"])
def test_another_version_of_triton_does_not_serve(machine: Machine, version: str) -> None:
    host = machine(*triton(version), DRIVER)

    assert unavailable_reason("triton", host) == f"triton is {version}; needed is >=3.6.dev0,<4"


@pytest.mark.parametrize("value", ["0", "1"])
def test_the_version_is_not_looked_at_if_the_user_says_so(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("TORCH_NATIVE_SKIP_VERSION_CHECK", value)
    store.forget()
    host = machine(*triton("2.0.0"), DRIVER)

    assert (unavailable_reason("triton", host) == "") is (value == "1")


def test_triton_needs_a_cuda_driver(machine: Machine) -> None:
    host = machine(*triton("3.6.0"))

    assert unavailable_reason("triton", host) == "the CUDA driver library (libcuda.so.1) is not installed"


def test_triton_needs_to_be_installed(machine: Machine) -> None:
    assert unavailable_reason("triton", machine(DRIVER)) == "triton is not installed"


def test_metadata_without_a_module_is_no_installation(machine: Machine) -> None:
    host = machine("site/triton-3.6.0.dist-info/METADATA", DRIVER)

    said = "triton is installed, but has no module triton to import"
    assert unavailable_reason("triton", host) == said


@pytest.mark.parametrize(
    ("name", "serves"), [("pytorch_triton", True), ("triton_nightly", True), ("triton_rocm", False)]
)
def test_only_the_flavours_for_nvidia_serve(machine: Machine, name: str, serves: bool) -> None:
    host = machine(*triton("3.6.0", name), DRIVER)

    assert (unavailable_reason("triton", host) == "") is serves


@pytest.mark.parametrize(
    ("version", "serves"),
    [("4.6.2", True), ("4.7.1", True), ("4.8.0", True), ("4.5.2", False), ("4.7.0", False)],
)
def test_cutedsl_serves_in_three_versions(machine: Machine, version: str, serves: bool) -> None:
    host = machine(
        f"site/nvidia_cutlass_dsl-{version}.dist-info/METADATA",
        "site/cutlass/__init__.py",
        "site/tvm_ffi/__init__.py",
        DRIVER,
    )

    assert (unavailable_reason("cutedsl", host) == "") is serves


@pytest.mark.parametrize(
    ("version", "backend", "lacks"),
    [
        ("1.2.0", "triton", ""),
        ("1.1.9", "triton", "helion is 1.1.9; needed is >=1.2.0"),
        ("1.2.0", "cute", "HELION_BACKEND is cute; torch supports triton alone"),
    ],
)
def test_helion_serves_through_triton(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, version: str, backend: str, lacks: str
) -> None:
    monkeypatch.setenv("HELION_BACKEND", backend)
    helion = (f"site/helion-{version}.dist-info/METADATA", "site/helion/__init__.py")

    assert "no module triton" in unavailable_reason("helion", machine(*helion))
    host = machine(*helion, "site/triton/__init__.py", DRIVER)
    assert unavailable_reason("helion", host) == lacks


def test_flydsl_serves_beside_rocm(machine: Machine) -> None:
    flydsl = ("site/flydsl-0.3.1.dist-info/METADATA", "site/flydsl/__init__.py")

    assert "HIP runtime" in unavailable_reason("flydsl", machine(*flydsl, DRIVER))
    assert not unavailable_reason("flydsl", machine(*flydsl, "opt/rocm/lib/libamdhip64.so"))


def test_cutedsl_needs_the_module_that_it_calls_through(machine: Machine) -> None:
    host = machine("site/nvidia_cutlass_dsl-4.8.0.dist-info/METADATA", "site/cutlass/__init__.py", DRIVER)

    assert "no module tvm_ffi" in unavailable_reason("cutedsl", host)


def test_the_version_is_read_without_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("raise SystemExit('imported')")
    (tmp_path / "triton-3.6.1.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)

    version = python_native.triton.version

    assert (str(version), version.minor if version else None) == ("3.6.1", 6)


def test_an_invalid_version_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "triton-nonsense!.dist-info").mkdir()
    monkeypatch.syspath_prepend(tmp_path)

    assert python_native.triton.version is None
