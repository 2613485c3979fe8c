"""Whether an expectation holds: values by name, several of them, and what could not be determined."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.audit.policy import selection
from mlbackends.audit.policy.evaluation import judged
from mlbackends.audit.policy.expectation import expected, name, read
from mlbackends.audit.policy.selection import Values
from mlbackends.base.errors import BadInput
from mlbackends.base.reasons import Reason
from mlbackends.model.audit import Severity, Status
from mlbackends.model.records import SCHEMA, Device, Failure, Library, Presence, ProbeReport, Report

GIB = 1 << 30


def gpu(index: int, **facts: Any) -> Device:
    return Device(
        "cuda",
        index,
        name="H100",
        memory_bytes=80 * GIB,
        capability="9.0",
        uuid=f"redacted-{index}",
        facts={"max_pcie_width": 16, **facts},
    )


def report(depth: Presence = Presence.USABLE, *, redacted: bool = True, **probes: ProbeReport) -> Report:
    return Report(SCHEMA, "backends 0", depth, "/", "2026-01-01T00:00:00Z", 0.0, redacted, probes)


MACHINE = report(
    cpu=ProbeReport(
        Presence.FOUND,
        facts={
            "capability": "AVX2",
            "cores": 8,
            "avx2": True,
            "features": ["avx", "avx2"],
            "vendor": "Intel",
            "max_hertz": 4_000_000_000,
        },
    ),
    host=ProbeReport(
        Presence.FOUND,
        facts={
            "kernel_release": "6.8.0-60-generic",
            "libc_version": "2.39",
            "host_name": "redacted-9",
            "shared_memory_bytes": 2 * GIB,
        },
    ),
    environment=ProbeReport(Presence.FOUND, facts={"variables": {"OMP_NUM_THREADS": "4", "A.B": "x"}}),
    nvidia=ProbeReport(
        Presence.USABLE,
        version="580.95.05",
        devices=(gpu(0, ecc=True), gpu(1, ecc=False), Device("mig", 0, memory_bytes=10 * GIB)),
    ),
    cudnn=ProbeReport(Presence.LOADABLE, version="9.15.0.dev1", libraries=(Library("cudnn", "/x"),)),
    nccl=ProbeReport(Presence.ABSENT, reasons=(Reason("not-found", "it is nowhere"),)),
    mtia=ProbeReport(None, reasons=(Reason("only-the-framework-knows", "no file tells"),)),
    mps=ProbeReport(Presence.FOUND, facts={"unsupported_types": ["float64", "bfloat16"]}),
    rocm=ProbeReport(None, failure=Failure("it broke")),
    xpu=ProbeReport(
        Presence.FOUND,
        facts={"gpu_count": 1},
        reasons=(Reason("permission-denied", "not for you"),),
    ),
)


@pytest.mark.parametrize(
    "text",
    [
        "cpu present",
        "nccl absent",
        "cpu.capability == AVX2",
        "cpu.capability >= avx2",
        "cpu.capability at_least DEFAULT",
        "cpu.capability in [AVX2, AVX512]",
        "cpu.capability not in [DEFAULT]",
        "cpu.cores>=8",
        "cpu.cores < 9",
        "cpu.max_hertz >= 3.5GHz",
        "cpu.avx2 == true",
        "cpu.features contains avx",
        "cpu.features count >= 2",
        "cpu.features[0] == avx",
        "cpu.vendor matches ^In",
        "probes.cpu.facts.cores == 8",
        "host.kernel_release >= 6.5",
        "host.libc_version ~= 2.28",
        "host.shared_memory_bytes >= 1GiB",
        "environment.variables.OMP_NUM_THREADS == 4",
        'environment.variables."A.B" == x',
        "environment.variables.KMP_DUPLICATE_LIB_OK absent",
        "environment.variables count == 2",
        "nvidia >= 580",
        "nvidia >= usable",
        "nvidia.version ~= 580.65",
        "cudnn at_least loadable",
        "cudnn >= 9.10",
        "nvidia.devices[kind == cuda] count == 2",
        "nvidia.devices[kind == cuda, index == 1] count == 1",
        "nvidia.devices[*].memory_bytes >= 10GiB",
        "nvidia.devices[kind == cuda].memory_bytes >= 80GiB",
        "nvidia.devices[facts.max_pcie_width >= 16] count == 2",
        "nvidia.devices[0].name == H100",
        "nvidia.devices.1.facts.ecc == false",
        "any nvidia.devices[*].facts.ecc == true",
        "none nvidia.devices[kind == cuda].memory_bytes < 80GiB",
        "none nvidia.devices[kind == rocm].memory_bytes < 80GiB",
        "any nvidia.devices[*].facts.ecc present",
        "nvidia.devices[*].pci_address absent",
    ],
)
def test_what_is_so_holds(text: str) -> None:
    assert judged(Values(MACHINE), read(text)).status is Status.PASSED


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nccl present", "nccl is absent: it is nowhere"),
        ("cpu absent", "cpu.presence is found, and should not be there"),
        ("nccl >= 2", "nccl.version is not in the report: nccl is absent"),
        ("cudnn at_least usable", "cudnn.presence is loadable, required: at least usable"),
        ("cpu.capability >= AVX512", "cpu.capability is AVX2, required: >= AVX512"),
        ("cpu.model_name == x", "cpu.model_name is not in the report"),
        ("host.shared_memory_bytes >= 8GB",
         "host.shared_memory_bytes is 2147483648 (2.147 GB), required: >= 8GB"),
        ("host.shared_memory_bytes >= 8GiB",
         "host.shared_memory_bytes is 2147483648 (2 GiB), required: >= 8GiB"),
        ("environment.variables.OMP_NUM_THREAD == 4", "not in the report; did you mean 'OMP_NUM_THREADS'?"),
        ("environment.variables.OMP_NUM_THREADS absent", "is 4, and should not be there"),
        ("nvidia.devices count == 8", "nvidia.devices count is 3, required: 8"),
        ("nvidia.devices[kind == rocm].name == x", "nvidia.devices[kind == rocm].name selects nothing"),
        ("nvidia.devices[*].memory_bytes >= 80GiB",
         "nvidia.devices.2.memory_bytes is 10737418240 (10 GiB), required:"),
        ("nvidia.devices[kind == cuda].facts.ecc == true",
         "nvidia.devices.1.facts.ecc is false, required: true"),
        ("nvidia.devices[*].facts.ecc present", "nvidia.devices.2.facts.ecc is not in the report"),
        ("nvidia.devices[*].facts.max_pcie_widht >= 16", "did you mean 'max_pcie_width'?"),
        ("any nvidia.devices[*].memory_bytes >= 1TiB", "one of them must be >= 1TiB"),
        ("none nvidia.devices[*].kind == mig", "nvidia.devices.2.kind is mig, and none may be mig"),
        ("none nvidia.devices[*].facts.ecc == 7", "not in the report"),
        ("cpu.vendor count == 1", "not a list, so it has no count"),
        ("cpu.vendor >= 1", "cpu.vendor is Intel"),
        ("nvidia.devices[5].name == x", "nvidia.devices.5 is not in the report"),
    ],
)  # fmt: skip
def test_what_is_not_so_is_told(text: str, said: str) -> None:
    verdict = judged(Values(MACHINE), read(text))

    assert verdict.status is Status.FAILED
    assert said in verdict.message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mtia present", "no file tells"),
        ("mtia absent", "no file tells"),
        ("rocm present", "it broke"),
        ("rocm absent", "it broke"),
        ("rocm.devices count == 0", "it broke"),
        ("none rocm.devices[*].name == x", "it broke"),
        ("rocm >= 6", "it broke"),
        ("tpu absent", "the report has no tpu"),
        ("xpu.driver == xe", "not for you"),
        ("xpu.driver absent", "not for you"),
        ("xpu.devices count == 0", "not for you"),
        ("host.host_name == x", "--no-redact"),
        ("nvidia.devices[*].uuid == x", "--no-redact"),
    ],
)
def test_what_could_not_be_told_is_neither(text: str, said: str) -> None:
    verdict = judged(Values(MACHINE), read(text))

    assert verdict.status is Status.UNKNOWN
    assert said in verdict.message


def test_a_fact_that_was_told_counts_though_others_were_not() -> None:
    assert judged(Values(MACHINE), read("xpu.gpu_count == 1")).status is Status.PASSED


def test_devices_that_only_a_closed_library_would_tell_are_not_none() -> None:
    library = Library("nvidia", "/usr/lib/wsl/lib/libnvidia-ml.so.1")
    machine = report(Presence.FOUND, nvidia=ProbeReport(Presence.FOUND, libraries=(library,)))

    verdict = judged(Values(machine), read("nvidia.devices count == 0"))

    assert verdict.status is Status.UNKNOWN
    assert "--depth usable" in verdict.message


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("nvidia at_least usable", Status.UNKNOWN),
        ("nvidia >= loadable", Status.UNKNOWN),
        ("nvidia >= found", Status.PASSED),
        ("cudnn at_least usable", Status.FAILED),
        ("nvidia.devices[*].presence >= usable", Status.UNKNOWN),
        ("any nvidia.devices[*].presence >= usable", Status.UNKNOWN),
        ("nvidia.cuda_version >= 12", Status.UNKNOWN),
        ("nvidia.cuda_version absent", Status.UNKNOWN),
        ("nvidia.devices[*].facts.ecc == true", Status.UNKNOWN),
        ("nvidia.devices[*].facts.max_pcie_width == 8", Status.FAILED),
        ("nvidia.devices count == 2", Status.FAILED),
        ("nvidia.devices count == 1", Status.PASSED),
    ],
)
def test_what_was_not_tried_is_neither_there_nor_missing(text: str, status: Status) -> None:
    device = Device("cuda", 0, facts={"max_pcie_width": 16})
    nvidia = ProbeReport(Presence.FOUND, libraries=(Library("nvidia", "/x"),), devices=(device,))
    machine = report(Presence.FOUND, nvidia=nvidia, cudnn=ProbeReport(Presence.ABSENT))

    assert judged(Values(machine), read(text)).status is status


def test_a_name_is_compared_where_nothing_was_replaced() -> None:
    machine = report(redacted=False, host=ProbeReport(Presence.FOUND, facts={"host_name": "node7"}))

    assert judged(Values(machine), read("host.host_name == node7")).status is Status.PASSED


@pytest.mark.parametrize(
    ("missing", "status", "severity"),
    [
        ("fail", Status.FAILED, None),
        ("warn", Status.FAILED, Severity.WARNING),
        ("skip", Status.SKIPPED, None),
        ("unknown", Status.UNKNOWN, None),
    ],
)
def test_what_is_missing_means_what_the_rule_says(
    missing: str, status: Status, severity: Severity | None
) -> None:
    verdict = judged(Values(MACHINE), read("cpu.model_name == x"), missing)

    assert (verdict.status, verdict.severity) == (status, severity)


@pytest.mark.parametrize(
    ("fact", "key", "value", "holds"),
    [
        ("cpu.cores", "equals", 8, True),
        ("cpu.cores", "equals", 8.0, True),
        ("cpu.cores", "not_equals", 8, False),
        ("cpu.vendor", "one_of", ["AMD", "Intel"], True),
        ("cpu.vendor", "none_of", ["AMD", "Intel"], False),
        ("cpu.features", "equals", ["avx", "avx2"], True),
        ("cpu.features", "equals", ["avx2", "avx"], False),
        ("cpu.features", "contains", ["avx", "avx2"], True),
        ("cpu.features", "contains", ["avx", "avx512"], False),
        ("mps.unsupported_types", "contains", ["fp64", "bf16"], True),
        ("mps.unsupported_types", "contains", "fp32", False),
        ("cpu.vendor", "contains", "nte", True),
        ("environment.variables", "contains", "OMP_NUM_THREADS", True),
        ("cpu.cores", "min", 8, True),
        ("cpu.cores", "min", 8.5, False),
        ("cpu.cores", "max", 8, True),
        ("host.shared_memory_bytes", "max", "1GiB", False),
        ("cpu.capability", "at_least", "AVX512", False),
        ("host.kernel_release", "version", ">=6.8,<6.9", True),
        ("cudnn", "version", ">=9.15.0.dev0,<9.16", True),
        ("cpu.features", "count", 2, True),
        ("cpu.features", "count", "!=2", False),
        ("cpu.features", "present", False, False),
        ("nvidia.devices[*].facts.nothing", "equals", 1, False),
        ("environment.variables.OMP_NUM_THREADS", "min", 2, False),
        ("environment.variables.OMP_NUM_THREADS", "equals", 4, False),
    ],
)
def test_each_assertion(fact: str, key: str, value: Any, holds: bool) -> None:
    verdict = judged(Values(MACHINE), expected(name(fact), key, value))

    assert verdict.status is (Status.PASSED if holds else Status.FAILED)


def test_true_is_no_one() -> None:
    machine = report(cpu=ProbeReport(Presence.FOUND, facts={"features": [True]}))

    assert judged(Values(machine), expected(name("cpu.features"), "equals", [1])).status is Status.FAILED


@pytest.mark.parametrize(
    ("long", "short"),
    [
        (("nvidia.devices[*].index", "equals", True), "nvidia.devices[*].index == true"),
        (("nvidia.devices[*].index", "not_equals", True), "nvidia.devices[*].index != true"),
        (("openmp.libraries[*].wins", "equals", 1), "openmp.libraries[*].wins == 1"),
        (("nvidia.devices", "min", 1), "nvidia.devices > 1"),
        (("nvidia.devices[*].facts", "min", 1), "nvidia.devices[*].facts > 1"),
    ],
)
def test_both_forms_refuse_what_cannot_be_compared(long: tuple[str, str, Any], short: str) -> None:
    machine = report(
        nvidia=ProbeReport(Presence.FOUND, devices=(gpu(0), gpu(1))),
        openmp=ProbeReport(Presence.FOUND, libraries=(Library("openmp", "/lib/a.so", wins=True),)),
    )
    fact, key, value = long

    for expectation in (expected(name(fact), key, value), read(short)):
        verdict = judged(Values(machine), expectation)
        assert verdict.status is Status.FAILED
        assert any(
            said in verdict.message
            for said in ("is never", "is not a number", "use count to compare its length")
        )


def test_a_number_of_four_hundred_digits_in_a_report_is_compared() -> None:
    huge = report(memory=ProbeReport(Presence.FOUND, facts={"total_bytes": int("9" * 400)}))

    for text, status in (
        ("memory.total_bytes >= 3GiB", Status.PASSED),
        ("memory.total_bytes < 3GiB", Status.FAILED),
        ("memory.total_bytes == 3", Status.FAILED),
    ):
        assert judged(Values(huge), read(text)).status is status


def test_a_report_of_millions_of_values_does_not_keep_us_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert selection.MOST_VALUES <= 5_000_000
    monkeypatch.setattr(selection, "MOST_VALUES", 50_000)
    machine = report(cpu=ProbeReport(Presence.FOUND, facts={"features": ["x"] * 10_000}))
    values = Values(machine)

    expectation = read("cpu.features[version == 1] count == 1")

    for _ in range(5):
        judged(values, expectation)
    with pytest.raises(BadInput, match="too many values"):
        judged(values, expectation)


def test_the_evidence_is_small() -> None:
    machine = report(cpu=ProbeReport(Presence.FOUND, facts={"features": ["x"] * 1000}))

    verdict = judged(Values(machine), read("cpu.features contains y"))

    assert verdict.evidence == {"cpu.features": "1000 elements"}
    assert len(verdict.message) < 300
