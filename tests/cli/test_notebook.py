"""Objects show themselves in a notebook as the command does, and without it in one line."""

from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec.structs import replace

from mlbackends.model.checked import SCHEMA as CHECK_SCHEMA
from mlbackends.model.checked import Checked
from mlbackends.model.records import SCHEMA, Presence, ProbeReport, Report
from mlbackends.tracing.session import Session
from mlbackends.tracing.viewing import SavedTrace

if TYPE_CHECKING:
    from mlbackends.base.display import Displayed

LOG = Path(__file__).resolve().parents[1] / "traces/torch-2.13-mkl.log"
LINE = b"MKL_VERBOSE DGEMM(N,N,8,8,8,0x1,0x2,8,0x3,8,0x4,0x5,8) 1.00us CNR:OFF\n"
PROBES = {
    "nnpack": ProbeReport(Presence.FOUND, version="1</iframe><script>"),
    "mkl": ProbeReport(Presence.ABSENT),
}
REPORT = Report(SCHEMA, "t", Presence.FOUND, "/", "2026-11-23", 0.1, redacted=False, probes=PROBES)


def session() -> Session:
    made = Session(("mkl",), "create")
    made.take([LINE])
    return made


THINGS: dict[str, tuple[Displayed, str, str, str]] = {
    "report": (REPORT, "<report of /: 1 found, 1 absent>", "nnpack", "What is in this machine"),
    "check": (
        Checked(CHECK_SCHEMA, "t", "2026-11-23", "Test", 2, ()),
        "<check of attention: 0 of 0 problems right>",
        "on Test, 2 threads",
        "Attention",
    ),
    "session": (session(), "<session of mkl: 1 records, ended>", "DGEMM", "session of mkl"),
    "trace": (SavedTrace(str(LOG)), f"<trace {LOG}>", "SGEMM", "Where the time went"),
}


@pytest.mark.parametrize("name", THINGS)
def test_a_notebook_gets_a_table_and_a_page_in_a_frame(name: str) -> None:
    thing, line, in_table, in_page = THINGS[name]
    bundle = thing._repr_mimebundle_()

    assert repr(thing) == line
    assert str(thing) == bundle["text/plain"]
    assert in_table in bundle["text/plain"]
    assert bundle["text/html"] == thing._repr_html_()
    (page,) = re.findall(r"srcdoc='([^']*)'", bundle["text/html"])
    assert unescape(page).startswith("<!doctype html>")
    assert in_page in unescape(page)


def test_a_notebook_that_is_shared_does_not_name_the_machine() -> None:
    facts: dict[str, Any] = {
        "platform": "linux",
        "kernel_name": "Linux",
        "os_name": "Debian",
        "host_name": "a-secret-name",
    }
    host = ProbeReport(Presence.FOUND, facts=facts)
    report = replace(REPORT, probes={"host": host})
    shown = report._repr_mimebundle_()

    assert "Debian" in shown["text/html"]
    assert "a-secret-name" not in str(shown)
    assert report.probes["host"].facts["host_name"] == "a-secret-name"


@pytest.mark.parametrize("name", THINGS)
def test_nothing_of_the_page_reaches_the_notebook(name: str) -> None:
    html = str(THINGS[name][0]._repr_html_())
    outside = re.sub(r"srcdoc='[^']*'", "", html)
    rules = re.findall(r"([^{}]*)\{", re.findall(r"<style>(.*?)</style>", outside, re.DOTALL)[0])

    tags = ["style", "/style", "iframe", "/iframe", "pre", "/pre"]
    assert re.findall(r"<(/?\w+)", outside) == tags
    assert all(selector.strip().endswith(".mlbackends") for rule in rules for selector in rule.split(","))


@pytest.mark.parametrize("name", THINGS)
def test_a_notebook_that_is_not_trusted_has_the_table(name: str) -> None:
    bundle = THINGS[name][0]._repr_mimebundle_()
    left = re.sub(r"<style>.*?</style>|<iframe.*?</iframe>", "", bundle["text/html"], flags=re.DOTALL)

    assert unescape(re.sub(r"</?pre[^>]*>", "", left)).strip() == bundle["text/plain"].strip()


def test_without_the_command_line_one_line_remains() -> None:
    program = (
        "import sys; sys.modules['mlbackends_cli'] = None\n"
        "from mlbackends.tracing.viewing import SavedTrace\n"
        "made = SavedTrace('run.log')\n"
        "assert str(made) == repr(made) == '<trace run.log>'\n"
        "assert made._repr_mimebundle_() == {'text/plain': repr(made)}\n"
        "assert made._repr_html_() is None\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
