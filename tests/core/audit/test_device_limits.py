"""Which limits of a kind of device apply on recorded machines, saved reports, and made-up ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mlbackends.audit import device_limits
from mlbackends.audit.device_limits import YARDSTICKS
from mlbackends.audit.hazard import ReportView
from mlbackends.audit.reports import report_of
from mlbackends.base.reasons import Reason
from mlbackends.model.device_kinds import Here, Need
from mlbackends.model.records import (
    SCHEMA,
    Device,
    FactValue,
    Library,
    Presence,
    ProbeReport,
    Report,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TESTS = Path(__file__).resolve().parents[2]


@cache
def recorded(name: str) -> Report:
    is_report = name.endswith(".json")
    return report_of(str(TESTS / (f"reports/{name}" if is_report else f"hosts/{name}.machine")))


def made(**probes: ProbeReport) -> Report:
    return Report(SCHEMA, "backends", Presence.USABLE, "/", "", 0.0, False, probes)


def gpus(*capabilities: str, features: tuple[str, ...] = ()) -> ProbeReport:
    devices = tuple(
        Device("cuda", at, "GPU", Presence.LOADABLE, capability=capability, features=features)
        for at, capability in enumerate(capabilities)
    )
    return ProbeReport(Presence.USABLE, version="12.4", devices=devices)


def limits(kind: str, report: Report) -> dict[str, Here | None]:
    return {limit.limit.what: limit.here for limit in device_limits.page_of(kind, report).limits}


def features(kind: str, report: Report) -> dict[str, Here | None]:
    page = device_limits.page_of(kind, report)
    return {feature.feature.what: feature.here for feature in page.features}


def holds(told: dict[str, Here | None], what: str) -> bool | None:
    here = told[what]
    assert here is not None
    assert here.because
    return here.holds


def test_a_mac_with_macos_14_has_bfloat16_and_no_float64() -> None:
    told = limits("mps", recorded("macbook-m3"))

    assert holds(told, "float64") is True
    assert holds(told, "bfloat16") is False
    assert holds(told, "complex64") is False
    assert holds(told, "torch 2.10 and newer") is False


def test_a_mac_with_macos_13_has_neither() -> None:
    facts: dict[str, FactValue] = {"macos_version": "13.6.7", "is_apple_silicon": True}
    mac = made(mps=ProbeReport(Presence.FOUND, facts=facts, devices=(Device("mps", 0),)))
    told = limits("mps", mac)

    assert holds(told, "bfloat16") is True
    assert holds(told, "cumsum of int64") is False
    assert told["bfloat16"] == Here(True, "macOS is 13.6.7")


def test_an_mi300x_has_its_own_eight_bit_floats() -> None:
    told = limits("rocm", recorded("mi300x-eight-gpus"))

    assert holds(told, "float8_e4m3fnuz") is False
    assert holds(told, "float8_e4m3fn") is True
    assert holds(told, "TF32 in products of float32") is False


def test_what_only_a_driver_tells_is_unknown_on_a_recorded_machine() -> None:
    told = limits("cuda", recorded("hgx-h100-eight-gpus"))

    assert {here.holds for here in told.values() if here} == {None}
    assert holds(features("cuda", recorded("hgx-h100-eight-gpus")), "unified memory") is None


def test_a_saved_report_with_the_drivers_word_tells_them() -> None:
    told = limits("cuda", recorded("hgx-h100-sound.json"))

    assert holds(told, "bfloat16") is False
    assert holds(told, "float8_e4m3fn") is False
    assert holds(told, "float4_e2m1fn_x2") is True


def test_a_gpu_that_is_lost_leaves_it_open() -> None:
    told = limits("cuda", recorded("hgx-h100-failing.json"))

    assert holds(told, "bfloat16") is None


def test_gpus_of_several_generations_are_told_apart() -> None:
    told = limits("cuda", made(cuda_driver=gpus("7.5", "8.6", "12.0")))

    assert told["bfloat16"] == Here(
        None, "device 1, 2 have compute capability 8.0, device 0 not", on=(0,), not_on=(1, 2)
    )
    assert told["float16"] == Here(False, "compute capability is 7.5, 8.6, 12.0", on=(), not_on=(0, 1, 2))
    assert told["float4_e2m1fn_x2"] == Here(
        None, "device 2 has compute capability 10.0, device 0, 1 not", on=(0, 1), not_on=(2,)
    )


def test_a_device_that_does_not_tell_leaves_it_open() -> None:
    told = limits("cuda", made(cuda_driver=gpus("8.0", "")))

    assert told["bfloat16"] == Here(
        None,
        "1 of 2 devices did not report it; otherwise compute capability is 8.0",
        on=(),
        not_on=(0,),
    )


def test_nvml_answers_where_the_driver_does_not_initialise() -> None:
    failed = ProbeReport(Presence.LOADABLE, devices=())
    told = limits("cuda", made(cuda_driver=failed, nvidia=gpus("7.0")))

    assert holds(told, "bfloat16") is True


def test_a_feature_needs_the_driver_and_the_device() -> None:
    with_pools = gpus("9.0", features=("memory-pools", "unified-addressing"))
    old = ProbeReport(Presence.USABLE, version="11.1", devices=with_pools.devices)
    without = gpus("9.0", features=("unified-addressing",))

    assert holds(features("cuda", made(cuda_driver=with_pools)), "stream-ordered allocation") is True
    assert holds(features("cuda", made(cuda_driver=old)), "stream-ordered allocation") is False
    assert holds(features("cuda", made(cuda_driver=without)), "stream-ordered allocation") is False
    assert holds(features("cuda", made(cuda_driver=old)), "graph capture") is True


def test_a_device_whose_driver_told_no_feature_has_not_been_asked() -> None:
    assert holds(features("cuda", made(cuda_driver=gpus("9.0"))), "unified memory") is None


@pytest.mark.parametrize(("words", "applies"), [(("fp16",), True), (("fp16", "fp64"), False)])
def test_an_arc_says_itself_whether_it_has_float64(words: tuple[str, ...], applies: bool) -> None:
    arc = Device("xpu", 0, presence=Presence.USABLE, features=words)
    told = limits("xpu", made(xpu=ProbeReport(Presence.USABLE, devices=(arc,))))

    assert holds(told, "float64") is applies
    assert holds(told, "float16") is False


@pytest.mark.parametrize(
    ("host", "native"),
    [
        ("graviton3-ec2", True),
        ("sapphire-rapids-workstation", True),
        ("icelake-ec2", False),
        ("ivy-bridge-desktop", False),
    ],
)
def test_a_cpu_computes_in_bfloat16_or_by_way_of_float32(host: str, native: bool) -> None:
    assert holds(limits("cpu", recorded(host)), "bfloat16") is not native


def test_without_such_a_device_nothing_is_held_to_it() -> None:
    page = device_limits.page_of("cuda", recorded("macbook-m3"))

    assert page.present is False
    assert not any(limit.here for limit in page.limits)
    assert not any(feature.here for feature in page.features)


def test_where_only_the_framework_knows_it_is_not_said_to_be_absent() -> None:
    untold = ProbeReport(None, reasons=(Reason("only-the-framework-knows", "no file tells"),))
    page = device_limits.page_of("mtia", made(mtia=untold, torch=ProbeReport(Presence.ABSENT)))

    assert page.present is None
    assert page.because == "no file tells"


def test_a_report_without_the_probe_cannot_tell() -> None:
    page = device_limits.page_of("xpu", made())

    assert (page.present, page.because) == (None, "the report has no xpu")


def test_a_probe_that_failed_cannot_tell() -> None:
    reasons = (Reason("timed-out", "it did not answer"),)
    page = device_limits.page_of("xpu", made(xpu=ProbeReport(None, reasons=reasons)))

    assert (page.present, page.because) == (None, "xpu could not be determined: it did not answer")


def test_without_a_report_the_data_alone_is_told() -> None:
    page = device_limits.page_of("cuda")

    assert (page.present, page.because, page.values) == (None, "", {})
    assert len(page.limits) == len(device_limits.load("cuda").limits)


def test_the_blas_in_use_is_told_with_its_threads() -> None:
    values = device_limits.page_of("cpu", recorded("cloud-vm-recorded")).values

    assert values["numpy.blas"] == "scipy-openblas"
    assert "of numpy" in str(values["openblas.libraries"])


def test_a_copy_of_a_library_says_whose_it_is_and_what_it_told_of_threads() -> None:
    facts: dict[str, FactValue] = {"threading": "pthreads", "threads": 64}
    copies = (
        Library("openblas", "/a/libopenblas.so.0", "libopenblas.so.0", "0.3.31", facts=facts),
        Library("openblas", "/b/libopenblas.so.0", owner="numpy 2.4", wins_because="another wins"),
    )
    report = made(openblas=ProbeReport(Presence.USABLE, libraries=copies))

    assert device_limits.page_of("cpu", report).values["openblas.libraries"] == [
        "libopenblas.so.0 0.3.31 at /a/libopenblas.so.0 (threading pthreads, threads 64)",
        "openblas of numpy 2.4, not taken",
    ]


def answered(probe: str) -> Report:
    """Ask a probe with a fake library in front; a GPU that this machine may have besides is left out."""
    report = report_of(names=(probe,))
    told = report.probes[probe]
    devices = tuple(device for device in told.devices if device.features)
    return made(**{probe: replace(told, devices=devices)})


def test_a_driver_that_is_asked_tells_its_features(
    fake_library: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(fake_library("computing_driver", "libcuda.so.1").parent))
    monkeypatch.setenv("FAKE_CUDA", "12040")
    monkeypatch.setenv("FAKE_CAPABILITY", "75")
    report = answered("cuda_driver")
    told = features("cuda", report)

    assert holds(limits("cuda", report), "bfloat16") is True
    assert holds(limits("cuda", report), "torch.compile with Triton") is False
    assert told["stream-ordered allocation"] == Here(
        True, "CUDA driver is 12.4; the driver says yes", on=(0,), not_on=()
    )
    assert holds(told, "pinning memory that is there") is True
    assert holds(told, "multicast") is False


@pytest.mark.parametrize("of", YARDSTICKS)
@given(
    at_least=st.sampled_from(["", "8.0", "14.0"]),
    one_of=st.lists(st.sampled_from(["gfx942", "gfx94*", "*", "memory-pools"]), max_size=2),
    value=st.one_of(st.text(), st.integers(), st.booleans(), st.lists(st.text())),
)
def test_no_value_makes_judging_fail(of: str, at_least: str, one_of: list[str], value: FactValue) -> None:
    need = Need(of, at_least, tuple(one_of) if not at_least else ())
    probes = {}
    for dotted in YARDSTICKS[of].names:
        probe, _, name = dotted.partition(".")
        device = Device("cuda", 0, capability=str(value), features=(str(value),))
        probes[probe] = ProbeReport(
            Presence.FOUND, version=str(value), facts={name: value}, devices=(device,)
        )
    seen = device_limits.met(need, ReportView(made(**probes)))

    assert seen.holds in (True, False, None)
    assert seen.because


@pytest.mark.parametrize("kind", device_limits.kinds())
@pytest.mark.parametrize("host", ["macbook-m3", "wsl2-nvidia", "broken-environment", "slurm-job-mig.json"])
def test_every_kind_has_a_page_on_every_machine(kind: str, host: str) -> None:
    page = device_limits.page_of(kind, recorded(host))

    assert page.kind == kind
    judged = [limit.here for limit in page.limits] + [feature.here for feature in page.features]
    assert all((here is not None) is bool(page.present) for here in judged)
