"""What can be required of a report, and what cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from mlbackends.audit.reports import report_of
from mlbackends.base.errors import MlBackendsError
from mlbackends.base.reasons import Reason
from mlbackends.model.records import Failure, Presence, ProbeReport, Report
from mlbackends.survey.requirement import Requirement, check, is_decidable, unmet

HOST = Path(__file__).resolve().parents[2] / "hosts" / "hgx-h100-eight-gpus.machine"


def with_probe(name: str, probe: ProbeReport) -> Report:
    report = report_of(str(HOST))
    return replace(report, probes={**report.probes, name: probe})


@pytest.mark.parametrize(
    "text",
    [
        "cudnn",
        "cudnn>=9.10,<10",
        "cudnn.version~=9.1",
        "cpu.capability>=AVX2",
        "cpu.capability==SVE256",
        "cpu.avx2",
        "cpu.avx2==true",
        "cpu.cores>=8",
        "limits.effective_memory_bytes>=16GiB",
        "nvidia.devices>=8",
        "nvidia.devices.0.name",
        "host.libc_version>=2.28",
    ],
)
def test_what_some_machine_could_meet_is_let_through(text: str) -> None:
    check(Requirement.parse(text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cpu.capability>=AVX3", "a word that has an order"),
        ("cpu.avx2==maybe", "true or false"),
        ("cpu.avx2>=1", "true or false"),
        ("cpu.cores>=many", "a number"),
        ("cudnn>=new", "a version"),
        ("cudnn~=9", "a version"),
        ("cpu.coress>=8", "no value named 'cpu.coress'"),
        ("cpu.cores>=8 GB", "cpu.cores is not a number of bytes"),
        ("memory.total_bytes>=8GHz", "memory.total_bytes is not a number of hertz"),
    ],
)
def test_what_no_machine_could_meet_is_decidable_without_one(text: str, said: str) -> None:
    need = Requirement.parse(text)
    with pytest.raises(MlBackendsError, match=said):
        check(need)


def test_a_message_names_no_option() -> None:
    with pytest.raises(MlBackendsError) as caught:
        Requirement.parse("cudnn=9")

    assert "--require" not in str(caught.value)
    assert caught.value.hint == "did you mean ==9?"


@pytest.mark.parametrize(
    ("probe", "told"),
    [
        (ProbeReport(Presence.ABSENT, reasons=(Reason("not-found", "nowhere"),)), True),
        (ProbeReport(Presence.FOUND, version="9.1"), True),
        (ProbeReport(Presence.FOUND), False),
        (ProbeReport(Presence.FOUND, version="9.1", reasons=(Reason("timed-out", "5 s"),)), False),
        (ProbeReport(None, failure=Failure("it broke")), False),
    ],
)
def test_a_no_is_decidable_from_a_who_knows(probe: ProbeReport, told: bool) -> None:
    need = Requirement.parse("cudnn>=9.10")
    report = with_probe("cudnn", probe)

    assert unmet(report, need)
    assert is_decidable(report, need) is told


@pytest.mark.parametrize(
    ("wanted", "seen"),
    [
        ("64GiB", "62.9 GiB"),
        ("0.0625 TiB", "0.06143 TiB"),
        ("68GB", "67.54 GB"),
        ("62.9GiB", "62.8994003301 GiB"),
        ("99999999999", "67537716839"),
    ],
)
def test_a_size_is_told_in_the_unit_that_was_typed(wanted: str, seen: str) -> None:
    report = with_probe("memory", ProbeReport(Presence.FOUND, facts={"total_bytes": 67537716839}))

    sentence = unmet(report, Requirement.parse(f"memory.total_bytes>={wanted}"))
    assert sentence.endswith(f": memory.total_bytes is {seen}, required: >= {wanted}")
