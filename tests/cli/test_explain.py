"""`backends explain`: every switch, code and deviation has a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from jsonschema import Draft202012Validator
from running import backends

from mlbackends.audit import device_limits
from mlbackends.audit.catalogue import codes
from mlbackends.model.device_kinds import KindPages
from mlbackends.model.records import SCHEMA, Device, Presence, ProbeReport, Report
from mlbackends.survey import all_codes
from mlbackends.switches.table import SWITCHES
from mlbackends.tracing.finder import finders
from mlbackends_cli.report.commands import explain

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", SWITCHES)
def test_every_switch_is_explained(name: str) -> None:
    (passage,) = explain.explained(name)
    said = dict(passage.lines)

    assert said[""] == SWITCHES[name].doc
    assert said["accepts"] and said["default"] and said["read by"] and said["in Python"]


@pytest.mark.parametrize("name", finders())
def test_a_finding_of_a_trace_is_explained(name: str) -> None:
    *_, passage = explain.explained(name)

    assert passage.lines[0][1].endswith(".")


def test_without_a_topic_there_is_a_short_index_by_kind() -> None:
    lines = backends("explain", environment={"COLUMNS": "80"}).stdout.splitlines()

    kinds = [words[0] for line in lines if line[:2] == "  " and line[2].isalpha() and (words := line.split())]
    assert kinds == ["switches", "hazards", "findings", "reasons", "deviations", "device"]
    assert len(lines) < 24


@pytest.mark.parametrize(
    ("topic", "names"), [("switches", SWITCHES), ("reasons", all_codes()), ("hazards", codes())]
)
def test_a_kind_lists_all_of_its_topics(topic: str, names: Iterable[str]) -> None:
    text = backends("explain", topic, environment={"COLUMNS": "1000"}).stdout

    assert all(name in text for name in names)


def test_an_unknown_topic_ends_with_2_and_the_nearest_one() -> None:
    done = backends("explain", "cudn.benchmark")

    assert done.returncode == 2
    assert "did you mean 'cudnn.benchmark'?" in done.stderr


# ---- devices -----------------------------------------------------------------------------------

HOSTS = ROOT / "tests" / "hosts"


def test_device_alone_lists_the_kinds() -> None:
    done = backends("explain", "device", environment={"COLUMNS": "200"})

    assert done.returncode == 0
    head, *lines = done.stdout.splitlines()
    assert head == "Kinds of devices"
    assert tuple(line.split()[0] for line in lines) == device_limits.kinds()


def test_the_page_of_a_kind_beside_a_recorded_machine() -> None:
    done = backends(
        *("explain", "device", "mps", "--report", str(HOSTS / "macbook-m3.machine")),
        environment={"COLUMNS": "80"},
    )

    golden = ROOT / "tests" / "cli" / "explained" / "mps-on-macbook-m3.txt"
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == golden.read_text(encoding="utf-8")


def test_a_kind_that_is_not_here_is_explained_without_a_verdict() -> None:
    done = backends("explain", "device", "cuda", "--report", str(HOSTS / "macbook-m3.machine"))

    text = " ".join(done.stdout.split())
    assert "No such device was found; the following describes the kind in general." in text
    assert "Applies" not in text
    assert "bfloat16 Below compute capability 8.0: It can be stored, but is emulated" in text
    assert "It needs CUDA driver 11.2 and CUDA attribute memory-pools." in text


def test_the_live_machine_is_looked_at_unless_another_is_named() -> None:
    done = backends("explain", "device", "cpu", "--format", "json")

    (page,) = msgspec.json.decode(done.stdout, type=KindPages).kinds
    assert (page.kind, page.present) == ("cpu", True)
    assert page.values["limits.effective_cpus"]


@pytest.mark.parametrize(
    "arguments",
    [(), ("cuda", "--report", str(HOSTS / "hgx-h100-eight-gpus.machine")), ("mtia", "opencl")],
)
def test_json_fits_its_schema(arguments: tuple[str, ...]) -> None:
    done = backends("explain", "device", *arguments, "--format", "json")

    told = msgspec.json.decode(done.stdout)
    schema = msgspec.json.decode(backends("schema", "devices").stdout)
    Draft202012Validator(schema).validate(told)
    assert told["schema"] == "backends.devices/1"


def test_markdown_has_a_table_that_no_name_can_break() -> None:
    device = Device("xpu", 0, "Arc | A770\n# <b>\x1b[31m", Presence.USABLE, features=("fp16",))
    report = Report(
        SCHEMA,
        *("backends", Presence.USABLE, "/", "", 0.0, False),
        {"xpu": ProbeReport(Presence.USABLE, devices=(device,))},
    )
    text = explain.device_markdown(device_limits.page_of("xpu", report))

    assert "\x1b" not in text
    assert "\n# <b>" not in text
    (row,) = (line for line in text.splitlines() if line.startswith("| float64 "))
    assert row.startswith("| float64 | Applies: the driver says no. | A kernel that uses it")


def test_devices_that_differ_are_named_by_their_numbers() -> None:
    devices = tuple(
        Device("cuda", at, presence=Presence.LOADABLE, capability=capability)
        for at, capability in enumerate(("7.5", "8.0"))
    )
    report = Report(
        SCHEMA,
        *("backends", Presence.USABLE, "/", "", 0.0, False),
        {"cuda_driver": ProbeReport(Presence.USABLE, devices=devices)},
    )
    page = device_limits.page_of("cuda", report)
    here = {limit.limit.what: limit.here for limit in page.limits}["bfloat16"]

    assert explain.applies(here) == (
        "Applies for device 0, not for device 1: device 1 has compute capability 8.0, device 0 not."
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("device", "cudda"), "did you mean 'cuda'?"),
        (("device", "--report", "-"), "--report goes with kinds of devices"),
        (("deviations", "--report", "-"), "--report goes with kinds of devices"),
        (("cudnn.benchmark", "--format", "json"), "--format json is for devices"),
        (("device", "mps", "--report", "/nonexistent"), "/nonexistent cannot be read"),
    ],
)
def test_what_does_not_go_together_ends_with_2(arguments: tuple[str, ...], said: str) -> None:
    done = backends("explain", *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "incomplete", "there", "missing"),
    [
        ("backends explain", "dev", "deviations", "cuda"),
        ("backends explain", "dev", "device", "mps"),
        ("backends explain device", "", "mps", "deviations"),
        ("backends explain device mps", "cu", "cuda", "mps"),
    ],
)
def test_kinds_are_completed_behind_the_word_device(
    words: str, incomplete: str, there: str, missing: str
) -> None:
    done = backends(
        environment={
            "_BACKENDS_COMPLETE": "bash_complete",
            "COMP_WORDS": f"{words} {incomplete}",
            "COMP_CWORD": str(len(words.split())),
        }
    )

    offered = {line.rpartition(",")[2] for line in done.stdout.splitlines()}
    assert there in offered
    assert missing not in offered
