"""The probe `loading`: packages that do not load, as they are followed from their files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mlbackends.host.host import Host
from mlbackends.host.recording.recorder import Recording
from mlbackends.model.records import Presence, ProbeReport
from mlbackends_probes.loading import derive, find, judged

NAME = "loading"
FAILS, FALLS_BACK = "does not load", "loads, then falls back"
LIBCUDART = "libcudart.so.13: cannot open shared object file: No such file or directory"


def row(fault: str, verdict: str = FAILS, **changes: str) -> dict[str, str]:
    """Return the fault of a package as the probe reports it."""
    usual = {"package": "sgl-kernel", "version": "0.3", "name": "libcudart.so.13", "message": LIBCUDART}
    return {**usual, "code": fault, "verdict": verdict, "command": "pip install x", **changes}


def test_an_import_decides_what_was_only_followed() -> None:
    rows = [row("missing-library"), row("missing-library", package="other")]
    facts: dict[str, Any] = {"distribution": "sgl-kernel", "imports": {"sgl_kernel": "imported"}}
    reports = {"sgl_kernel": ProbeReport(Presence.LOADABLE, facts=facts)}

    left: Any = derive({"followed": 2, "faults": rows}, reports)["faults"]
    reasons, warnings = judged({"faults": [row("not-opened-later", FALLS_BACK), *left]})

    assert [fault["package"] for fault in left] == ["other"]
    assert [reason.message for reason in reasons] == [f"other 0.3 {FAILS}: {LIBCUDART}"]
    assert [reason.code for reason in (*reasons, *warnings)] == ["does-not-load", "falls-back"]
    assert "faults" not in derive({"followed": 1, "faults": rows[:1]}, reports)


def test_the_import_of_a_package_without_a_probe_decides_too() -> None:
    rows = [row("missing-file", package="scikit-learn")]
    reports = {
        "packages": ProbeReport(Presence.FOUND, facts={"imports": {"sklearn": "import sklearn fails"}})
    }

    assert "faults" not in derive({"followed": 1, "faults": rows}, reports)


def test_a_machine_that_is_being_recorded_is_not_followed() -> None:
    assert [reason.code for reason in find(Recording()).reasons] == ["not-followed"]


def test_a_recorded_machine_is_not_followed() -> None:
    machine = Path(__file__).parents[1] / "hosts/hgx-h100-eight-gpus.machine"

    assert [reason.code for reason in find(Host(str(machine))).reasons] == ["not-followed"]
