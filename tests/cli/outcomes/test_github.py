"""GitHub's workflow commands: read back by the runner's rules; no text of others becomes one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import given
from outcome_samples import ANY, GOLDEN, failed_codes, hostile, long, sample, with_checks, written

from mlbackends.model.audit import Check, Outcome, Place, Severity, Status
from mlbackends_cli.formats import github

if TYPE_CHECKING:
    from pathlib import Path

ANNOTATIONS = {"error", "warning", "notice"}


class Command(NamedTuple):
    name: str
    properties: dict[str, str]
    text: str


def unescaped(text: str, codes: dict[str, str]) -> str:
    for code, letter in {"%0D": "\r", "%0A": "\n", **codes, "%25": "%"}.items():
        text = text.replace(code, letter)
    return text


def commands(text: str) -> list[Command]:
    """Read a log as the runner does: a command starts a line with "::", or is "##[" anywhere in it."""
    found = []
    for line in text.removesuffix("\n").split("\n"):
        assert "\r" not in line
        start = line.lstrip()
        if start.startswith("::"):
            head, _, data = start[2:].partition("::")
            name, _, told = head.partition(" ")
            pairs = [pair.split("=", 1) for pair in told.split(",") if "=" in pair]
            properties = {key: unescaped(value, {"%3A": ":", "%2C": ","}) for key, value in pairs}
            found.append(Command(name, properties, unescaped(data, {})))
        else:
            assert "##[" not in line
    return found


def annotated(text: str) -> list[Command]:
    return [command for command in commands(text) if command.name in ANNOTATIONS]


def step_summary(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    return path


def test_the_sample_is_as_it_was() -> None:
    assert written("github", sample()) == (GOLDEN / "sample.github").read_text(encoding="utf-8")


def test_a_place_is_told_from_the_root_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    inside = Check("a", "t", Severity.ERROR, Status.FAILED, place=Place("p.toml", 2))
    outside = Check("b", "t", Severity.ERROR, Status.FAILED, place=Place("/etc/p.toml"))

    told = annotated(written("github", with_checks(inside, outside)))

    assert [command.properties["file"] for command in told] == ["below/p.toml", "p.toml"]
    assert ["line" in command.properties for command in told] == [True, False]


def test_ten_of_a_kind_are_shown_and_the_tenth_tells_of_more() -> None:
    text = written("github", long())
    told = annotated(text)

    assert [command.name for command in told] == ["error"] * 10 + ["warning"] * 10 + ["notice"] * 10
    assert told[9].properties["title"] == "backends doctor: 992 more errors"
    assert all(code[:1900] in text for code in failed_codes(long()))


def test_ten_that_are_all_are_told_themselves() -> None:
    ten = [Check(f"c{n}", "t", Severity.ERROR, Status.FAILED) for n in range(10)]

    told = annotated(written("github", with_checks(*ten)))

    assert [command.properties["title"] for command in told] == [f"backends doctor: c{n}" for n in range(10)]


@given(ANY)
def test_any_outcome_makes_its_own_commands_alone(outcome: Outcome) -> None:
    told = commands(written("github", outcome))

    assert len([command for command in told if command.name in ANNOTATIONS]) == len(outcome.failed())
    assert {command.name for command in told} <= ANNOTATIONS | {"group", "endgroup"}


def test_hostile_text_makes_no_command_and_stays_itself() -> None:
    told = commands(written("github", hostile()))

    assert {command.name for command in told} == ANNOTATIONS | {"group", "endgroup"}
    (error,) = [command for command in told if command.name == "error"]
    assert "%0A%25 ::error::e" in error.text
    assert "a,b=c:d" in error.properties["title"]


def test_the_summary_is_appended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = step_summary(tmp_path / "summary.md", monkeypatch)
    file.write_text("# Before\n")

    github.publish(sample())

    assert file.read_text(encoding="utf-8") == "# Before\n\n" + written("markdown", sample())


@pytest.mark.parametrize("before", [900_000, github.SUMMARY_LIMIT - 3000])
def test_the_summary_fits_and_is_of_the_worst(
    before: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = step_summary(tmp_path / "summary.md", monkeypatch)
    file.write_bytes(b"x" * before)

    github.publish(long())

    added = file.read_text(encoding="utf-8")[before:]
    assert len(file.read_bytes()) <= github.SUMMARY_LIMIT
    assert re.search(r"and [\d]+ more findings; `--format json` has all", added)
    assert "warning |" not in added or "error |" in added


def test_a_full_summary_is_left_alone_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = step_summary(tmp_path / "summary.md", monkeypatch)
    file.write_bytes(b"x" * github.SUMMARY_LIMIT)

    github.publish(sample())

    assert file.stat().st_size == github.SUMMARY_LIMIT
    assert "the step's summary is full" in capsys.readouterr().err


def test_a_summary_that_cannot_be_written_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    step_summary(tmp_path / "no" / "summary.md", monkeypatch)

    github.publish(sample())

    told = capsys.readouterr().err
    assert told.startswith("backends: the step's summary cannot be written") and told.count("\n") == 1
