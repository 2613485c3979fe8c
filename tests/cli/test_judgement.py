"""What an outcome means: the exit code, and a file that is written whole or not at all."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from outcome_samples import sample, with_checks

from mlbackends.base.errors import BadInput
from mlbackends.model.audit import Check, Outcome
from mlbackends_cli import exits, formats
from mlbackends_cli.report import judgement

if TYPE_CHECKING:
    from pathlib import Path

FORMATS = formats.names("outcome")
NOTHING = with_checks(Check("a", "t"))


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


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_written_and_changes_no_exit_code(form: str, tmp_path: Path) -> None:
    file = tmp_path / "outcome"

    assert finish(sample(), form=form, output=str(file)) == exits.NO
    assert finish(NOTHING, form=form, output=str(file)) == exits.YES
    assert file.read_bytes().endswith(b"\n")


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

    assert [path.name for path in tmp_path.iterdir()] == ["outcome"]
    assert file.read_text() == "before"


def test_github_leaves_a_summary_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
