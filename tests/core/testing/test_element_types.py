"""Which element types a device cannot compute in."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from mlbackends.audit.device_limits import kinds, load
from mlbackends.audit.reports import report_of
from mlbackends.base.errors import UnknownName
from mlbackends.model.device_kinds import Concern
from mlbackends.model.records import Device, Presence, Report
from mlbackends.testing import unsupported

HOSTS = Path(__file__).resolve().parents[2] / "hosts"


def host(name: str) -> Report:
    return report_of(str(HOSTS / f"{name}.machine"))


def mac(version: str) -> Report:
    report = host("macbook-m3")
    probe = report.probes["mps"]
    facts = {**probe.facts, "macos_version": version}
    return replace(report, probes={**report.probes, "mps": replace(probe, facts=facts)})


def gpus(*capabilities: str) -> Report:
    report = host("hgx-h100-eight-gpus")
    devices = tuple(
        Device("cuda", index, presence=Presence.USABLE, capability=capability)
        for index, capability in enumerate(capabilities)
    )
    driver = replace(report.probes["cuda_driver"], devices=devices, presence=Presence.USABLE)
    return replace(report, depth=Presence.USABLE, probes={**report.probes, "cuda_driver": driver})


def test_what_nothing_lifts_needs_no_machine() -> None:
    assert "no double" in unsupported("mps", "float64", report=host("ivy-bridge-desktop"))
    assert "no double" in unsupported("mps:0", "double")


@pytest.mark.parametrize("dtype", ["bfloat16", "complex64"])
def test_macos_decides_about_bfloat16_and_complex(dtype: str) -> None:
    assert unsupported("mps", dtype, report=mac("14.5")) == ""
    why = unsupported("mps", dtype, report=mac("13.6"))
    assert why.startswith(f"mps has no {dtype}") and "macOS is 13.6" in why and "macOS 14.0" in why


def test_the_capability_decides_about_float8() -> None:
    assert unsupported("cuda", "float8_e4m3fn", report=gpus("9.0")) == ""
    assert "8.9" in unsupported("cuda", "float8_e4m3fn", report=gpus("8.0"))


def test_of_several_gpus_each_has_its_own_limits() -> None:
    both = gpus("9.0", "8.0")

    assert unsupported("cuda:0", "float8_e4m3fn", report=both) == ""
    assert unsupported("cuda:1", "float8_e4m3fn", report=both)


def test_what_is_only_emulated_counts_when_asked() -> None:
    old = host("ivy-bridge-desktop")

    assert unsupported("cpu", "bfloat16", report=old) == ""
    assert "float32" in unsupported("cpu", "bfloat16", report=old, emulated=True)


def test_what_the_report_does_not_tell_does_not_count() -> None:
    assert unsupported("mps", "bfloat16", report=host("ivy-bridge-desktop")) == ""


def test_the_emulated_types_are_those_whose_limit_says_so() -> None:
    for kind in kinds():
        for limit in load(kind).limits:
            words = ("emulated", "computed in")
            is_said = any(word in limit.detail for word in words)
            assert limit.emulated is (limit.concern is Concern.DTYPE and is_said), (kind, limit)


@pytest.mark.parametrize(("device", "dtype"), [("mpx", "float64"), ("mps", "float46")])
def test_wrong_names_are_told(device: str, dtype: str) -> None:
    with pytest.raises(UnknownName, match=r"mpx|float46"):
        unsupported(device, dtype)


def test_every_type_in_the_data_can_be_asked_for() -> None:
    for kind in kinds():
        for limit in load(kind).limits:
            if limit.concern is Concern.DTYPE and not limit.lifted_by:
                assert limit.source in unsupported(kind, limit.what)
