"""Packages that are imported in processes of their own, whatever they do there."""

from __future__ import annotations

import ast
import json
import os
import shutil
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry
from mlbackends.host.host import Host
from mlbackends.model.records import Presence
from mlbackends.survey import survey

if TYPE_CHECKING:
    from tests.conftest import FakeLibrary

    from mlbackends.model.records import ProbeReport


def imported(
    folder: Path, sources: dict[str, str], timeout: float = 5.0, executable: str = sys.executable
) -> dict[str, ProbeReport]:
    """Return the reports of probes whose packages have these sources."""
    for module, source in sources.items():
        (folder / module).mkdir()
        (folder / module / "__init__.py").write_text(source)
    host = Host(
        python={"executable": executable, "path": [str(folder)]},
        environment={"PYTHONPATH": str(folder), "PATH": os.environ["PATH"]},
    )
    return survey([*sources], host, Presence.USABLE, timeout=timeout).probes


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ("import typing_extras", "import-failed", "No module named 'typing_extras'"),
        ("raise SystemExit(0)", "import-failed", "import triton fails: SystemExit: 0"),
        ("raise KeyboardInterrupt", "import-failed", "import triton fails: KeyboardInterrupt"),
        ("def (", "import-failed", "SyntaxError: invalid syntax"),
        ("import os; os.kill(os.getpid(), 4)", "crashed", "ended the process with SIGILL"),
        ("import os; os.kill(os.getpid(), 11)", "crashed", "ended the process with SIGSEGV"),
        ("import os; print('bye', flush=True); os._exit(0)", "exited", "it printed: bye"),
        ("import os; [os.close(at) for at in range(9)]; 1 / 0", "exited", "exit code"),
    ],
)
def test_the_words_of_an_import_that_fails_are_the_reason(
    tmp_path: Path, source: str, code: str, words: str
) -> None:
    report = imported(tmp_path, {"triton": source})["triton"]

    (reason,) = report.reasons
    assert report.presence is Presence.FOUND
    assert reason.code == code
    assert words in reason.message
    assert report.facts["imports"] == {"triton": reason.message}


def test_a_package_that_hangs_is_stopped_and_left_open(tmp_path: Path) -> None:
    start = time.monotonic()
    report = imported(tmp_path, {"triton": "import time; time.sleep(60)"}, timeout=0.1)["triton"]

    assert time.monotonic() - start < 10
    assert [reason.code for reason in report.reasons] == ["timed-out"]


def test_a_package_that_prints_without_end_while_it_is_imported_is_imported(tmp_path: Path) -> None:
    flood = "import sys\nfor _ in range(9000): print('x' * 99); print('y' * 99, file=sys.stderr)"

    report = imported(tmp_path, {"triton": flood})["triton"]

    assert (report.presence, report.facts["imports"]) == (Presence.LOADABLE, {"triton": "imported"})


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "libpart-9.so.1: cannot open shared object file"),
        (40, "libpart-9.so.1: file too short"),
        (300, "libpart-9.so.1: cannot read file data"),
    ],
)
def test_a_library_that_is_missing_or_cut_off_is_named_in_the_loaders_words(
    tmp_path: Path, fake_library: FakeLibrary, size: int, words: str
) -> None:
    whole = fake_library("part", "libpart-9.so.1", source="int part = 1;").read_bytes()
    if size:
        (tmp_path / "libpart-9.so.1").write_bytes(whole[:size])
    source = (
        f"import ctypes, os\nat = {str(tmp_path / 'libpart-9.so.1')!r}\n"
        "ctypes.CDLL(at if os.path.exists(at) else 'libpart-9.so.1')"
    )

    report = imported(tmp_path, {"triton": source})["triton"]

    assert words in report.reasons[0].message


def test_nothing_of_ours_is_where_the_package_is_imported(tmp_path: Path) -> None:
    source = (
        "import json, sys\nours = [name for name in sys.modules if 'mlbackends' in name]\n"
        f"with open({str(tmp_path / 'seen')!r}, 'w') as file:\n"
        "    json.dump([sys.argv, sys.path, ours], file)\n"
    )

    imported(tmp_path, {"triton": source})

    arguments, path, ours = json.loads((tmp_path / "seen").read_text())
    assert (arguments, ours) == (["-c"], [])
    assert "" not in path
    assert not [folder for folder in path if folder.endswith(("isolation", "package_checks"))]


def test_a_check_is_next_to_its_probe_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe of another distribution has its own; one without a file has none of the current folder."""
    check = tmp_path / "package_checks" / "our_card.py"
    check.parent.mkdir()
    check.touch()
    monkeypatch.chdir(tmp_path)
    probe = ModuleType("our_card")

    assert registry.check_of("our_card", probe) == ""
    probe.__file__ = str(tmp_path / "our_card.py")
    assert registry.check_of("our_card", probe) == str(check)
    assert registry.check_of("triton", probe) == ""


def test_pages_of_advice_around_the_first_error_are_left_out(tmp_path: Path) -> None:
    source = (
        "try:\n    raise ImportError('libblas.so.3: file too short')\n"
        "except ImportError as error:\n    raise ImportError('PLEASE READ THIS') from error\n"
    )

    report = imported(tmp_path, {"triton": source})["triton"]

    assert report.reasons[0].message == ("import triton fails: ImportError: libblas.so.3: file too short")


def test_of_a_long_list_of_attempts_the_loaders_words_are_kept(tmp_path: Path) -> None:
    attempts = "Could not load any common_ops library! " + "attempted location; " * 50
    words = "ImportError: libnvrtc.so.12: cannot open shared object file: No such file"
    source = f"raise ImportError({attempts!r} + '\\n- {words}\\n- another')"

    report = imported(tmp_path, {"triton": source})["triton"]

    assert report.reasons[0].message == (
        "import triton fails: ImportError: libnvrtc.so.12: cannot open shared object file: No such file"
    )


FAISS = """
import os

class StandardGpuResources: ...

class IndexFlatL2:
    def __init__(self, size): ...
    def add(self, rows): ...
    def search(self, rows, count):
        import array
        class One(list):
            tolist = lambda self: list(self)
        return One([[1.0]]), One([[1]])

def get_num_gpus():
    {gpus}
"""
FAKE_NUMPY = """
float32 = "f"
def array(rows, kind): return rows
"""


@pytest.mark.parametrize(
    ("gpus", "verdict"),
    [
        ("return 2", "starts"),
        ("return 0", "it is not offered"),
        ("raise OSError('libcudart.so.12: cannot open shared object file')", "libcudart.so.12: cannot"),
        (r"os.write(2, b'\x1b[31mE cuda.cc:12] Failed to load, error: libx.so.1: undefined symbol: y\n')",
         "libx.so.1: undefined symbol: y"),
    ],
)  # fmt: skip
def test_a_build_for_gpus_that_computes_on_the_processor_is_a_verdict_with_the_loaders_words(
    tmp_path: Path, gpus: str, verdict: str
) -> None:
    sources = {"faiss": FAISS.format(gpus=gpus), "numpy": FAKE_NUMPY}

    report = imported(tmp_path, sources)["faiss"]

    assert report.presence is Presence.USABLE
    assert str(report.facts["accelerators"]["gpu"]).startswith(verdict)  # type: ignore[index,call-overload]
    codes = [warning.code for warning in report.warnings]
    assert codes == ([] if verdict == "starts" else ["falls-back"])


def test_nothing_is_imported_below_usable(tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    host = Host(
        python={"executable": sys.executable, "path": [str(tmp_path)]},
        environment={"PYTHONPATH": str(tmp_path)},
    )

    for depth in (Presence.FOUND, Presence.LOADABLE):
        report = survey((), host, depth).probes["triton"]

        assert report.presence is Presence.FOUND
        assert "imports" not in report.facts
    assert not (tmp_path / "ran").exists()


def test_every_package_on_the_page_is_imported(tmp_path: Path) -> None:
    """The names of the page's packages, and of the modules that were imported, are the same."""
    modules = ["torch", "jax", "scipy", "sklearn", "flash_attn", "flashinfer", "vllm", "kernels"]
    for module in modules:
        (tmp_path / module).mkdir()
        (tmp_path / module / "__init__.py").touch()
        name = {"sklearn": "scikit_learn", "flashinfer": "flashinfer_python"}.get(module, module)
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n\n")
    host = Host(
        python={"executable": sys.executable, "path": [str(tmp_path)]},
        environment={"PYTHONPATH": str(tmp_path)},
    )

    report = survey((), host, Presence.USABLE)

    imports = [probe.facts.get("imports") for probe in report.probes.values()]
    names = [name for own in imports if isinstance(own, dict) for name in own]
    assert sorted(names) == sorted(modules)
    located = {
        str(path).rpartition("/")[2]
        for probe in report.probes.values()
        for path in (probe.facts.get("location", ""), *_values(probe.facts.get("locations")))
    } - {""}
    assert located | {"sklearn"} == set(modules)


def test_a_file_that_a_package_without_a_probe_lacks_ends_the_words(tmp_path: Path) -> None:
    for name, source in (("sklearn", "from scipy import _fblas"), ("scipy", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(source)
    for name, needs, record in (
        ("scikit_learn", "Requires-Dist: scipy\n", "sklearn/__init__.py,,\n"),
        ("scipy", "", "scipy/_fblas.so,,5\n"),
    ):
        info = tmp_path / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{needs}\n")
        (info / "RECORD").write_text(record)
    host = Host(
        python={"executable": sys.executable, "path": [str(tmp_path)]},
        environment={"PYTHONPATH": str(tmp_path)},
    )

    (reason,) = survey(("packages",), host, Presence.USABLE).probes["packages"].reasons

    assert "cannot import name '_fblas'" in reason.message
    assert reason.message.endswith(f"; {tmp_path}/scipy/_fblas.so of scipy 1.0 is missing")


def _values(fact: object) -> list[object]:
    return list(fact.values()) if isinstance(fact, dict) else []


def test_an_interface_that_a_release_does_not_have_is_no_fault_of_the_package(
    tmp_path: Path,
) -> None:
    report = imported(tmp_path, {"faiss": "", "numpy": ""})["faiss"]

    assert report.presence is Presence.LOADABLE
    assert [reason.code for reason in report.reasons] == ["not-computed"]
    assert report.facts["imports"] == {"faiss": "imported"}


def test_metadata_without_files_stays_a_reason_next_to_a_package_that_is_imported(
    tmp_path: Path,
) -> None:
    for name, module in (("flash_attn-2.8", ""), ("flashinfer_python-0.6", "flashinfer")):
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\n\n")
        if module:
            (tmp_path / module).mkdir()
            (tmp_path / module / "__init__.py").touch()
    host = Host(
        python={"executable": sys.executable, "path": [str(tmp_path)]},
        environment={"PYTHONPATH": str(tmp_path)},
    )

    report = survey(("flash_attention",), host).probes["flash_attention"]

    assert report.presence is Presence.FOUND
    assert [reason.code for reason in report.reasons] == ["metadata-only"]
    assert report.facts["imports"] == {"flashinfer": "imported"}


@pytest.mark.skipif(sys.platform != "linux", reason="root may read everything")
@pytest.mark.parametrize("lost", ["part", "part/_core"])
def test_a_folder_that_this_user_may_not_read_is_named_with_the_import_that_fails(
    tmp_path: Path, lost: str
) -> None:
    python = tmp_path / "python"
    caps = "-dac_override,-dac_read_search"
    drop = f"setpriv --bounding-set={caps} --inh-caps={caps} " * (os.geteuid() == 0)
    if drop and not shutil.which("setpriv"):
        pytest.skip("root has no setpriv")
    python.write_text(f'#!/bin/sh\nexec {drop}{sys.executable} "$@"\n')
    python.chmod(0o755)
    (tmp_path / "part" / "_core").mkdir(parents=True)
    (tmp_path / "part" / "__init__.py").write_text("__version__ = '2.4'")
    (tmp_path / "part" / "_core" / "__init__.py").write_text("umath = 1")
    (tmp_path / "triton-1.0.dist-info").mkdir()  # what is damaged, too, is not the cause
    (tmp_path / "triton-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\n\n")
    (tmp_path / "triton-1.0.dist-info" / "RECORD").write_text("triton/lost.py,,5\npart/lost.py,,5\n")
    (tmp_path / lost).chmod(0)
    source = "from part import __version__\nfrom part._core import umath"

    try:
        report = imported(tmp_path, {"triton": source}, executable=str(python))["triton"]
    finally:
        (tmp_path / lost).chmod(0o755)

    assert report.reasons[0].message.endswith(f"; this user may not read {tmp_path / lost}")


def test_a_check_declares_whether_it_computes() -> None:
    for path in (Path(registry.__file__).parents[3] / "probes").glob("*/package_checks/*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        assigned = {name.id for node in tree.body if isinstance(node, ast.Assign) for name in node.targets
                    if isinstance(name, ast.Name)}  # fmt: skip
        assert ("judge" in names) == ("COMPUTES" in assigned), path
