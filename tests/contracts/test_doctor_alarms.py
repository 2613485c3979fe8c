"""Each alarm on a recorded machine has a reason in alarms.json, and sound machines have none."""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlbackends.audit.reports import LIVE, report_of
from mlbackends.audit.runner import examine
from mlbackends.model.audit import Severity
from mlbackends.model.records import Presence

if TYPE_CHECKING:
    from types import ModuleType

HOSTS = Path(__file__).resolve().parents[1] / "hosts"


@cache
def script() -> ModuleType:
    """Import tests/hosts/alarms.py, which is no module of any package."""
    specification = importlib.util.spec_from_file_location("alarms", HOSTS / "alarms.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@cache
def alarms() -> Any:
    return script().alarms()


def test_every_alarm_is_weighed_and_every_sentence_is_of_one() -> None:
    assert list(script().faults(alarms(), script().reasons())) == []


def test_the_environment_of_the_tests_has_no_error_but_the_machines_own() -> None:
    excepted = script().reasons()[script().OWN]
    live = examine(report_of(LIVE, depth=Presence.FOUND))

    found = [check for check in live.failed(Severity.ERROR) if check.code not in excepted]

    assert [(check.code, check.message) for check in found] == []


def test_most_machines_that_nothing_is_wrong_with_are_quiet() -> None:
    sounding = {alarm.host for alarm in alarms() if alarm.severity is not Severity.NOTE}
    well = {"alder-lake-hybrid", "cloud-vm-recorded", "graviton3-ec2", "ivy-bridge-desktop"}

    assert well & sounding == set()
