"""A policy that is written from a machine fits it, is tight, and names nobody."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mlbackends.audit.policy.draft import written
from mlbackends.audit.policy.evaluation import audit
from mlbackends.audit.policy.reader import parsed
from mlbackends.audit.policy.rules import declared
from mlbackends.audit.reports import report_of
from mlbackends.host.declared import facts_of
from mlbackends.model.audit import Outcome, Status
from mlbackends.model.records import SCHEMA, Device, Presence, ProbeReport, Report

FOLDER = Path(__file__).resolve().parents[3] / "hosts"
HOSTS = sorted(path.stem for path in FOLDER.glob("*.machine"))


def audited(text: str, report: Report) -> Outcome:
    policy = declared(parsed(text.encode(), "/nowhere/policy.toml", "/nowhere"))
    return audit([policy], report, dt.date(2026, 1, 1))


@pytest.mark.parametrize("host", HOSTS)
def test_a_recorded_machine_fits_the_policy_that_was_written_from_it(host: str) -> None:
    report = report_of(str(FOLDER / f"{host}.machine"))

    outcome = audited(written(report), report)

    assert outcome.checks
    assert {check.status for check in outcome.checks} == {Status.PASSED}


@pytest.mark.parametrize("host", HOSTS)
def test_nothing_that_names_a_machine_is_in_its_policy(host: str) -> None:
    report = report_of(str(FOLDER / f"{host}.machine"), redact=False)
    text = written(report)
    names: set[str] = set()
    for name, probe in report.probes.items():
        facts = facts_of(name).values()
        identities = {fact.name for fact in facts if fact.role == "identity"}
        names |= {str(probe.facts[fact]) for fact in identities & probe.facts.keys()}
        names |= {value for device in probe.devices for value in (device.uuid, device.serial)}

    names.discard("host")  # what a recording has in place of a name
    assert not [name for name in names if len(name) > 3 and name in text]
    assert "/home/" not in text and "~/" not in text


def test_a_machine_with_less_does_not_fit() -> None:
    report = report_of(str(FOLDER / "hgx-h100-eight-gpus.machine"))
    text = written(report)
    nvidia, memory = report.probes["nvidia"], report.probes["memory"]
    total = memory.facts["total_bytes"]
    assert isinstance(total, int)
    less = replace(memory, facts={**memory.facts, "total_bytes": total * 9 // 10})
    worse = replace(
        report,
        probes={
            **report.probes,
            "nvidia": replace(nvidia, devices=nvidia.devices[1:], version="550.1"),
            "memory": less,
            "cudnn": ProbeReport(Presence.ABSENT),
        },
    )

    failed = {check.code for check in audited(text, worse).failed()}

    assert failed == {
        "nvidia-cuda-devices",
        "nvidia-version",
        "memory-total-bytes",
        "cudnn-version",
    }


VALUES = st.one_of(
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.text(max_size=20),
    st.just([]),
    st.just({}),
)
NAMES = (
    "host.libc_version",
    "host.os_id",
    "cpu.cores",
    "cpu.capability",
    "memory.total_bytes",
    "torch.built_for",
)


@st.composite
def reports(draw: st.DrawFn) -> Report:
    """Draw a report as a hostile hand may have written it: any value under every name."""
    facts: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        probe, _, fact = name.partition(".")
        facts.setdefault(probe, {})[fact] = draw(VALUES)
    devices = st.builds(
        Device,
        st.text(max_size=3) | st.just("cuda"),
        st.integers(0, 3),
        name=st.text(max_size=3),
        memory_bytes=st.none() | st.integers(0, 2**80),
    )
    probes = {
        name: ProbeReport(
            draw(st.sampled_from([*Presence, None])),
            version=draw(st.text(max_size=4) | st.just("1.0+cu12")),
            facts=facts.get(name, {}),
            devices=draw(st.lists(devices, max_size=2).map(tuple)),
        )
        for name in (*facts, "nvidia", "cudnn", "python")
    }
    return Report(SCHEMA, "b", Presence.USABLE, "/", draw(st.text(max_size=9)), 0.0, True, probes)


@given(reports())
def test_whatever_a_report_says_its_policy_can_be_read_and_fits(report: Report) -> None:
    outcome = audited(written(report), report)

    assert {check.status for check in outcome.checks} <= {Status.PASSED}


def test_the_head_shows_how_known_hazards_are_looked_for() -> None:
    text = written(report_of(str(FOLDER / "ivy-bridge-desktop.machine")))

    assert "\n# Known hazards can be looked for too" in text
    policy = text.replace("# hazards = {", "hazards = {")
    assert declared(parsed(policy.encode(), "/nowhere/policy.toml", "/nowhere")).hazards is not None
