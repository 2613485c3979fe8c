"""What to type: in which environment, and that no word of a report is more than a word."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.audit.environment import install, reinstall, uninstall, without_folder
from mlbackends.audit.hazard import ReportView
from mlbackends.host.python.installing import quoted
from mlbackends.model.records import Presence, ProbeReport, Report


def report(**facts: dict[str, object]) -> ReportView:
    probes = {name: ProbeReport(Presence.FOUND, facts=fact) for name, fact in facts.items()}  # type: ignore[arg-type]
    report = Report("", "", Presence.FOUND, "", "", 0.0, False, probes)
    return ReportView(report)


VENV = report(python={"executable": "/venv/bin/python", "manager": "venv"})
UV = report(python={"executable": "/venv/bin/python", "manager": "uv"})


def test_pip_is_the_one_of_the_environment_that_is_looked_at() -> None:
    assert install(VENV, "numpy<2") == "/venv/bin/python -m pip install 'numpy<2'"
    assert uninstall(VENV, "a", "b") == "/venv/bin/python -m pip uninstall a b"
    assert reinstall(VENV, "a", "1") == ("/venv/bin/python -m pip install --force-reinstall --no-deps a==1")


def test_a_build_that_pypi_does_not_have_is_reinstalled_from_pytorchs_index() -> None:
    index = "--index-url https://download.pytorch.org/whl/cu126"

    assert reinstall(VENV, "torch", "2.6.0+cu126").endswith(f"{index} --no-deps torch==2.6.0+cu126")
    assert "--index-url" not in reinstall(VENV, "torch", "2.6.0")
    assert "--index-url" not in reinstall(VENV, "flash_attn", "2.8.3+cu12torch2.8")


def test_what_uv_made_has_no_pip_of_its_own() -> None:
    assert install(UV, "a") == "uv pip install --python /venv/bin/python a"
    assert uninstall(UV, "a") == "uv pip uninstall --python /venv/bin/python a"
    assert reinstall(UV, "a", "") == (
        "uv pip install --python /venv/bin/python --reinstall-package a --no-deps a"
    )


def test_without_an_interpreter_it_is_the_one_on_path() -> None:
    assert install(report(), "a") == "python -m pip install a"


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_every_word_stays_one_word_for_a_shell(word: str) -> None:
    words = shlex.split(uninstall(VENV, word))

    assert words == ["/venv/bin/python", "-m", "pip", "uninstall", word]


def test_the_home_folder_of_a_redacted_report_stays_bare() -> None:
    assert quoted("~/venv/bin/python") == "~/venv/bin/python"
    assert quoted("~/my venv/x") == "~/'my venv/x'"
    assert quoted("~") == "'~'"
    assert quoted("~/") == "'~/'"
    assert quoted("") == "''"


@pytest.mark.parametrize(
    ("value", "command"),
    [
        ("/opt/cuda/lib", "unset LD_LIBRARY_PATH"),
        ("/opt/cuda/lib/:", "unset LD_LIBRARY_PATH"),
        ("/a:/opt/cuda/lib:/b", "export LD_LIBRARY_PATH=/a:/b"),
        ("/a;/opt/cuda/lib", "export LD_LIBRARY_PATH=/a"),
        ("~/a b:/opt/cuda/lib", "export LD_LIBRARY_PATH=~/'a b'"),
        ("/a:/b", ""),
        (None, ""),
    ],
)
def test_one_folder_is_taken_out_of_a_search_path(value: str | None, command: str) -> None:
    variables = {} if value is None else {"LD_LIBRARY_PATH": value}
    told = report(environment={"variables": variables})

    assert without_folder(told, "LD_LIBRARY_PATH", "/opt/cuda/lib/libcublas.so.12") == command


def test_a_file_without_a_folder_changes_no_search_path() -> None:
    told = report(environment={"variables": {"LD_LIBRARY_PATH": "/a"}})

    assert without_folder(told, "LD_LIBRARY_PATH", "libx.so") == ""
