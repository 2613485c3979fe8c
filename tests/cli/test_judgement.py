"""What an outcome means: the exit code, and a file that is written whole or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from outcome_samples import hostile, sample, with_checks

from mlbackends.base.errors import BadInput
from mlbackends.model.audit import Check, Outcome, Severity, Status
from mlbackends_cli import exits, formats
from mlbackends_cli.report import judgement

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = formats.names("outcome")
NOTHING = with_checks(Check("a", "t"))


def failed(severity: Severity) -> Outcome:
    return with_checks(Check("a", "t", severity, Status.FAILED), Check("b", "t"))


def finish(outcome: Outcome, **more: Any) -> int:
    told = {
        "form": "table",
        "fail_on": "error",
        "strict": False,
        "details": False,
        "output": "",
        "color": "never",
        **more,
    }
    return judgement.finish(outcome, **told)


@pytest.mark.parametrize("severity", Severity)
@pytest.mark.parametrize("fail_on", [*Severity, judgement.NEVER])
def test_what_is_as_bad_as_asked_for_is_exit_1(severity: Severity, fail_on: str) -> None:
    counts = fail_on != judgement.NEVER and severity.level >= Severity(fail_on).level

    code = judgement.code(failed(severity), fail_on=str(fail_on), strict=False)

    assert code == (exits.NO if counts else exits.YES)


@pytest.mark.parametrize("status", [Status.PASSED, Status.SKIPPED, Status.WAIVED, Status.UNKNOWN])
def test_what_did_not_fail_is_exit_0(status: Status) -> None:
    outcome = with_checks(Check("a", "t", Severity.ERROR, status))

    assert judgement.code(outcome, fail_on="note", strict=False) == exits.YES


def test_what_could_not_be_told_is_exit_3_only_where_asked_for() -> None:
    outcome = with_checks(Check("a", "t", Severity.NOTE, Status.UNKNOWN))

    assert judgement.code(outcome, fail_on="error", strict=False) == exits.YES
    assert judgement.code(outcome, fail_on="error", strict=True) == exits.UNKNOWN
    assert judgement.code(NOTHING, fail_on="error", strict=True) == exits.YES


def test_a_failure_counts_more_than_what_could_not_be_told() -> None:
    assert judgement.code(sample(), fail_on="error", strict=True) == exits.NO
    assert judgement.code(sample(), fail_on="never", strict=True) == exits.UNKNOWN


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_written_and_changes_no_exit_code(form: str, tmp_path: Path) -> None:
    file = tmp_path / "outcome"

    assert finish(sample(), form=form, output=str(file)) == exits.NO
    assert finish(NOTHING, form=form, output=str(file)) == exits.YES
    assert file.read_bytes().endswith(b"\n")


@pytest.mark.parametrize("form", FORMATS)
def test_the_worst_text_is_written_too(form: str, tmp_path: Path) -> None:
    file = tmp_path / "outcome"

    assert finish(hostile(), form=form, output=str(file)) == exits.NO
    file.read_text(encoding="utf-8")


@pytest.mark.parametrize("form", FORMATS)
def test_a_file_that_cannot_be_written_keeps_what_it_had(form: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "outcome").write_text("before")
    full = tmp_path / "full"
    full.symlink_to("/dev/full")

    with pytest.raises(BadInput, match="cannot be written: No space left on device"):
        finish(sample(), form=form, output=str(full))
    with pytest.raises(BadInput, match="cannot be written"):
        finish(sample(), form=form, output=str(folder))

    assert os.listdir(folder) == ["outcome"]
    assert (folder / "outcome").read_text() == "before"


def test_a_disk_that_is_full_in_the_middle_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "outcome"
    file.write_text("before")

    def refuse(old: str, new: str) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(BadInput, match="No space left on device"):
        finish(sample(), output=str(file))

    assert [each.name for each in tmp_path.iterdir()] == ["outcome"]
    assert file.read_text() == "before"


def test_github_leaves_a_summary_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))

    finish(sample(), form="github", output=str(tmp_path / "log"))

    assert (tmp_path / "summary.md").read_text(encoding="utf-8").startswith("## Known hazards")


def test_a_summary_that_cannot_be_written_changes_no_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "no" / "summary.md"))

    assert finish(NOTHING, form="github", output=str(tmp_path / "log")) == exits.YES


def test_no_colour_reaches_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")

    finish(sample(), output=str(tmp_path / "page"), color="auto")

    assert "\033" not in (tmp_path / "page").read_text()
