"""An environment of its own making, one of whose packages cannot be imported, as every command shows it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from running import backends

from mlbackends.testing.machine import Machine
from mlbackends.testing.requirements import demand, unmet_on

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(os.name == "nt", reason="a venv there has another layout")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make an environment whose torch lacks cuDNN, whose xformers imports torch, and whose rich is old."""
    folder = tmp_path_factory.mktemp("broken")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    (site,) = folder.glob("env/lib/python*/site-packages")
    requires = {"torch": "nvidia-cudnn-none==9.26.0", "xformers": "torch", "rich": "pygments>=2"}
    for name, need in requires.items():
        info = site / f"{name}-2.15.0.dist-info"
        info.mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.15.0\nRequires-Dist: {need}\n\n"
        (info / "METADATA").write_text(text)
    for name, source in (
        ("torch", "import ctypes\nctypes.CDLL('libcudnn-none.so.9')"),
        ("xformers", "import torch"),
        ("rich", ""),
    ):
        (site / name).mkdir()
        (site / name / "__init__.py").write_text(source)
    (site / "torch/_C.so").write_bytes(b"no library")
    return str(folder / "env/bin/python")


WORDS = "OSError: libcudnn-none.so.9: cannot open shared object file: No such file or directory"


def test_doctor_ends_with_1_and_one_finding_for_the_cause(python: str) -> None:
    done = backends("doctor", "--python", python, "--format", "json")

    checks = [check for check in json.loads(done.stdout)["checks"] if check["status"] == "failed"]
    named = [check for check in checks if "cudnn-none" in json.dumps(check)]
    assert done.returncode == 1
    assert [check["code"] for check in named] == ["package-cannot-be-imported"]
    assert named[0]["severity"] == "error"
    assert named[0]["message"] == f"torch and xformers cannot be imported: {WORDS}"
    assert named[0]["command"].endswith("pip install nvidia-cudnn-none==9.26.0")
    unmet = [check["message"] for check in checks if check["code"] == "requirements-not-met"]
    assert unmet == ["1 requirement not met: rich 2.15.0 needs pygments>=2 (not installed)"]


def test_the_page_marks_both_as_broken(python: str) -> None:
    page = backends("info", "--deep", "--python", python).stdout

    for name in ("torch", "xformers"):
        assert any(line.split()[:2] == ["✗", name] for line in page.splitlines()), page


def test_without_deep_what_does_not_open_or_lacks_a_requirement_is_imported(python: str) -> None:
    done = backends("info", "--python", python, "--format", "json")

    probes = json.loads(done.stdout)["probes"]
    assert probes["torch"]["facts"]["imports"] == {"torch": f"import torch fails: {WORDS}"}
    assert probes["torch"]["reasons"][0]["code"] == "import-failed"
    assert "imports" not in probes["xformers"]["facts"]


@pytest.mark.parametrize(("requires", "extension"), [("nvidia-none", b""), ("", b"no library")])
def test_the_page_shows_a_package_that_lacks_something(
    tmp_path: Path, requires: str, extension: bytes
) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    (site,) = tmp_path.glob("env/lib/python*/site-packages")
    (site / "torch-2.15.0.dist-info").mkdir()
    need = f"Requires-Dist: {requires}\n" if requires else ""
    text = f"Metadata-Version: 2.1\nName: torch\nVersion: 2.15.0\n{need}\n"
    (site / "torch-2.15.0.dist-info/METADATA").write_text(text)
    (site / "torch").mkdir()
    (site / "torch/__init__.py").write_text("import nothing_like_it")
    if extension:
        (site / "torch/_C.so").write_bytes(extension)

    page = backends("info", "--python", str(tmp_path / "env/bin/python")).stdout
    assert any(line.split()[:2] == ["✗", "torch"] for line in page.splitlines()), page
    assert "No module named 'nothing_like_it'" in " ".join(page.split())


def installed(folder: Path, module: str, **sources: str) -> str:
    """Make an environment with one package, its files and their sizes as installed; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    (site,) = folder.glob("env/lib/python*/site-packages")
    (site / module).mkdir()
    (site / f"{module}-1.0.dist-info").mkdir()
    text = f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n\n"
    (site / f"{module}-1.0.dist-info/METADATA").write_text(text)
    record = [f"{module}/{name}.py,,{len(source)}" for name, source in sources.items()]
    (site / f"{module}-1.0.dist-info/RECORD").write_text("\n".join(record) + "\n")
    for name, source in sources.items():
        (site / module / f"{name}.py").write_text(source)
    return str(folder / "env/bin/python")


def test_a_package_without_an_extension_module_is_shown_as_not_imported(tmp_path: Path) -> None:
    python = installed(tmp_path, "opt_einsum", __init__="from . import parser", parser="")

    page = backends("info", "--python", python).stdout
    record = json.loads(backends("info", "--python", python, "--format", "json").stdout)
    named = backends("info", "opt_einsum", "--python", python, "--format", "json")

    (reason,) = record["probes"]["opt_einsum"]["reasons"]
    assert reason["code"] == "not-imported"
    (row,) = (line.split() for line in page.splitlines() if "opt_einsum" in line)
    assert row == ["·", "opt_einsum", "1.0", "not", "imported"]
    assert json.loads(named.stdout)["probes"]["opt_einsum"]["facts"]["imports"] == {"opt_einsum": "imported"}


@pytest.mark.parametrize(
    ("parser", "words"),
    [(None, "is missing"), ("def (", "has 5 bytes instead of 9"), ("x = 0\n" * 2, "")],
)
def test_a_damaged_file_is_named_with_the_import_that_fails(
    tmp_path: Path, parser: str | None, words: str
) -> None:
    python = installed(tmp_path, "opt_einsum", __init__="from . import parser", parser="y = 1 + 1")
    (path,) = tmp_path.glob("env/lib/python*/site-packages/opt_einsum/parser.py")
    path.unlink()
    if parser is not None:
        path.write_text(parser)

    page = backends("info", "--python", python).stdout
    done = backends("doctor", "--python", python, "--format", "json")

    (row,) = (
        line.split() for line in page.splitlines() if line.split()[1:2] == ["opt_einsum"] and "1.0" in line
    )
    checks = [check for check in json.loads(done.stdout)["checks"] if check["status"] == "failed"]
    broken = [check for check in checks if "opt_einsum" in json.dumps(check)]
    assert row[0] == ("✗" if words else "◐")
    assert len(broken) == bool(words)
    if words:
        assert broken[0]["message"].endswith(f"{path} of opt-einsum 1.0 {words}")
        assert broken[0]["command"].endswith("--force-reinstall --no-deps opt-einsum==1.0")


@pytest.mark.skipif(sys.platform != "linux", reason="NumPy's extension module has another name")
def test_an_extension_module_that_opens_is_not_imported() -> None:
    done = backends("info", "--format", "json")
    named = backends("info", "numpy", "--format", "json")

    opened, imported = (json.loads(run.stdout)["probes"]["numpy"] for run in (done, named))
    assert opened["facts"]["imports"] == {"numpy": "opened"}
    assert opened["presence"] == "loadable"
    assert imported["facts"]["imports"] == {"numpy": "imported"}
    assert imported["presence"] == "usable"


def test_a_report_whose_packages_were_only_opened_judges_no_import(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text(backends("info", "--format", "json").stdout)
    done = backends("doctor", str(report), "--format", "json", "--only", "package-cannot-be-imported")

    (check,) = json.loads(done.stdout)["checks"]
    assert check["status"] == "unknown"
    assert "without --deep" in check["message"]


def test_the_page_names_the_cause_once(python: str) -> None:
    page = backends("info", "--deep", "--python", python).stdout

    assert page.count("libcudnn-none.so.9") == 1
    assert "xformers for the same cause" in " ".join(page.split())


def test_what_the_page_lists_as_a_package_is_what_was_imported(python: str) -> None:
    page = backends("info", "--deep", "--python", python).stdout
    done = backends("info", "--deep", "--python", python, "--format", "json")

    section = page.partition("\nPackages")[2].partition("\nLibraries")[0]
    rows = [line.split()[:2] for line in section.splitlines() if line.strip()]
    listed = {row[1] for row in rows if row[0] in "✓◐·✗?"} - {"compilers", "packages"}
    probes = json.loads(done.stdout)["probes"]
    imported = {name for name, probe in probes.items() if "imports" in probe.get("facts", {})}
    assert listed == imported == {"torch", "xformers"}


def test_the_record_has_the_words_of_the_loader(python: str) -> None:
    done = backends("info", "--deep", "--python", python, "--format", "json")

    probes = json.loads(done.stdout)["probes"]
    assert probes["torch"]["facts"]["imports"] == {"torch": f"import torch fails: {WORDS}"}
    assert probes["torch"]["reasons"][0]["code"] == "import-failed"
    assert probes["packages"]["facts"]["unmet"] == [
        {"package": "rich", "version": "2.15.0", "needs": "pygments", "wanted": ">=2"},
        {
            "package": "torch",
            "version": "2.15.0",
            "needs": "nvidia-cudnn-none",
            "wanted": "==9.26.0",
        },
    ]
    assert probes["packages"]["warnings"][0]["code"] == "requirement-unmet"


def test_a_requirement_and_an_assertion_are_not_met(python: str) -> None:
    required = backends("info", "--python", python, "--require", "torch>=2")
    audited = backends("audit", "--python", python, "--require", "torch == usable")

    assert (required.returncode, audited.returncode) == (1, 1)
    assert "libcudnn-none.so.9" in required.stderr


def test_a_test_that_requires_the_package_is_skipped_with_the_reason(python: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text(backends("info", "--deep", "--python", python, "--format", "json").stdout)
    machine = Machine(str(report))

    found = unmet_on(machine, demand(("torch>=2",), {}), ())

    assert found is not None
    assert WORDS in found.why


def test_a_value_from_files_imports_nothing(python: str) -> None:
    done = backends("info", "--python", python, "--get", "torch.version", "--get", "torch.imports")
    alone = backends("info", "--python", python, "--timing", "--get", "torch.version")

    assert done.stdout.splitlines()[0] == alone.stdout.strip() == "2.15.0"
    assert "libcudnn-none" in done.stdout


def test_found_opens_nothing(python: str) -> None:
    done = backends("doctor", "--python", python, "--depth", "found", "--format", "json")

    outcome = {check["code"]: check for check in json.loads(done.stdout)["checks"]}
    assert outcome["package-cannot-be-imported"]["status"] == "unknown"
    assert "nvidia-cudnn-none" in outcome["requirements-not-met"]["message"]


def test_an_interrupt_ends_the_packages_that_are_being_imported(tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    started = tmp_path / "pid"
    source = f"import os, time\nopen({str(started)!r}, 'w').write(str(os.getpid()))\ntime.sleep(99)"
    (tmp_path / "triton" / "__init__.py").write_text(source)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [
        sys.executable,
        "-c",
        "from mlbackends_cli import program; program()",
        "info",
        "triton",
    ]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE)
    while not (started.exists() and started.read_text()):
        assert process.poll() is None
        time.sleep(0.01)

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)

    assert process.returncode == 130
    assert not psutil.pid_exists(int(started.read_text()))
