"""Every value has one name; a wrong name and a missing value are told apart."""

from __future__ import annotations

from typing import Any

import pytest

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.base.reasons import Reason
from mlbackends.model.records import SCHEMA, Device, Library, Presence, ProbeReport, Report
from mlbackends.survey.dotted import NoValue, undetermined, value

REPORT = Report(
    SCHEMA,
    "backends 0",
    Presence.FOUND,
    "/",
    "",
    0.0,
    False,
    {
        "cudnn": ProbeReport(
            Presence.FOUND,
            version="9.28.0",
            facts={
                "sub_libraries": ["graph", "ops"],
                "table": {"a": 1},
                "rules": [{"runtime": "os.cpu_count", "cpus": 8}, {"runtime": "MKL", "cpus": 4}],
            },
            libraries=(Library("cudnn", "/lib/libcudnn.so.9", facts={"kept": "by the copy"}),),
            devices=(Device("cuda", 0, name="H200", facts={"mig": False}, volatile={"power_watts": 71.5}),),
        ),
        "nccl": ProbeReport(Presence.ABSENT),
    },
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cudnn.version", "9.28.0"),
        ("cudnn.presence", "found"),
        ("cudnn.sub_libraries", ["graph", "ops"]),
        ("cudnn.sub_libraries.1", "ops"),
        ("cudnn.table.a", 1),
        ("cudnn.libraries.0.path", "/lib/libcudnn.so.9"),
        ("cudnn.devices.0.name", "H200"),
        ("cudnn.devices.0.mig", False),
        ("cudnn.devices.0.power_watts", 71.5),
        ("cudnn.devices.name", ["H200"]),
        ("cudnn.rules.MKL.cpus", 4),
        ("cudnn.rules.os.cpu_count.cpus", 8),
        ("cudnn.rules.cpus", [8, 4]),
        ("cudnn.kept", "by the copy"),
        ("nccl.libraries", []),
        ("nccl.presence", "absent"),
    ],
)
def test_a_name_leads_to_its_value(name: str, expected: Any) -> None:
    assert value(REPORT, name, ("kept",)) == expected


@pytest.mark.parametrize(
    "name",
    [
        "nccl.version",
        "cudnn.declared",
        "cudnn.libraries.1.path",
        "cudnn.libraries.x",
        "cudnn.version.x",
    ],
)
def test_a_right_name_without_a_value_here_is_no_value(name: str) -> None:
    with pytest.raises(NoValue):
        value(REPORT, name, declared=("declared",))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("cudn.version", "'cudnn'"),
        ("cudnn.versio", "'cudnn.version'"),
        ("cudnn.", "cudnn.presence"),
    ],
)
def test_a_wrong_name_is_told_the_nearest(name: str, hint: str) -> None:
    with pytest.raises((UnknownName, BadInput)) as caught:
        value(REPORT, name)
    assert hint in caught.value.hint


def test_what_is_left_open_is_named() -> None:
    late = (Reason("timed-out", "no answer"),)
    surely = (Reason("crashed", "SIGSEGV"),)
    probes = {
        "cpu": ProbeReport(Presence.FOUND, reasons=surely, warnings=surely),
        "mtia": ProbeReport(None, reasons=surely),
        "nccl": ProbeReport(
            Presence.USABLE,
            libraries=(Library("nccl", "/a", reasons=late), Library("nccl", "/b", reasons=surely)),
        ),
        "nvidia": ProbeReport(Presence.USABLE, devices=(Device("cuda", 1, reasons=late),)),
        "memory": ProbeReport(Presence.FOUND, warnings=late),
        "xpu": ProbeReport(Presence.ABSENT, reasons=late),
    }

    assert undetermined(Report(SCHEMA, "", Presence.USABLE, "/", "", 0.0, False, probes)) == [
        *("mtia", "nccl (/a)", "nvidia (cuda:1)", "memory", "xpu")
    ]
