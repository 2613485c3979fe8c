"""`backends diff`: two machines, recorded, saved or live; what it prints and how it ends."""

from __future__ import annotations

import html
import json
import sys
import venv
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from running import backends

from mlbackends.audit.reports import report_of
from mlbackends.model.difference import Difference
from mlbackends_cli import formats

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
HGX = str(ROOT / "tests/hosts/hgx-h100-eight-gpus.machine")
DOCKER, DEGRADED = "docker-geforce-compat", "gpu-server-degraded"
BROKEN = str(ROOT / "tests/hosts/broken-environment.machine")


@pytest.fixture
def environment(tmp_path: Path) -> Callable[..., str]:
    """Make a virtual environment with a NumPy and the library that its wheel includes; return its Python."""

    def made(*, numpy: str, library: str) -> str:
        home = tmp_path / f"numpy-{numpy}"
        venv.create(home, symlinks=True)
        (site,) = home.glob("lib/python3*/site-packages")
        described = site / f"numpy-{numpy}.dist-info"
        described.mkdir()
        (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: numpy\nVersion: {numpy}\n")
        (described / "RECORD").write_text(f"numpy.libs/{library},,\nnumpy/__init__.py,,\n")
        (site / "numpy").mkdir()
        (site / "numpy/__init__.py").write_text(f"__version__ = {numpy!r}\n")
        (site / "numpy.libs").mkdir()
        (site / "numpy.libs" / library).write_bytes(b"\x7fELF")
        return str(home / "bin/python")

    return made


def test_two_that_differ_end_with_1_and_say_how_many() -> None:
    done = backends("diff", HGX, BROKEN, "--only", "cpu.cores", "--only", "cpu.threads")
    assert done.returncode == 1
    body, _, note = done.stdout.partition("\n\n")
    assert body == (
        "cpu\n  ~ cores: 64 → 8 (warning: it is less)\n  ~ threads: 128 → 16 (warning: it is less)"
    )
    assert note.split() == f"from {HGX} to {BROKEN}: 2 warnings, 2 changed".split()
    assert done.stderr == ""


def test_versions_come_first_and_an_upgrade_is_no_warning(environment: Callable[..., str]) -> None:
    old, new = (
        environment(numpy=version, library=f"libscipy_openblas64_-{digest}.so")
        for version, digest in (("2.2.6", "56d6093b"), ("2.4.6", "32a4b2a6"))
    )
    done = backends("diff", "--python", old, "--python", new)

    assert done.returncode == 1
    assert done.stdout.startswith("versions\n  ~ numpy.version: 2.2.6 → 2.4.6\n")
    assert "warning" not in done.stdout and "gone" not in done.stdout
    assert f"from {old} to {new}: " in " ".join(done.stdout.split())
    back = backends("diff", "--python", new, "--python", old, "--fail-on", "warning")
    assert back.returncode == 1
    assert "numpy.version: 2.4.6 → 2.2.6 (warning: it is older)" in back.stdout


def test_one_python_is_compared_with_ours_and_too_many_are_refused(
    environment: Callable[..., str],
) -> None:
    theirs = environment(numpy="2.2.6", library="libscipy_openblas64_-56d6093b.so")
    alone = backends("diff", "--python", theirs, "--only", "python")
    assert "from this machine to" in " ".join(alone.stdout.split())

    saved = Path(theirs).parents[1] / "theirs.json"
    backends("info", "--python", theirs, "--depth", "found", "--format", "json", "--output", str(saved))
    warned = backends("diff", str(saved), "-")
    assert warned.stderr.startswith("backends: warning: these are two Python environments: ")
    assert str(sys.prefix) in warned.stderr
    assert backends("diff", str(saved), "-", "--python", theirs).stderr == ""

    refused = backends("diff", HGX, BROKEN, "--python", theirs)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("backends: --python was given once, and none of the two is -")
    missing = backends("diff", HGX)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("backends: `backends diff` needs B\n")


def test_a_name_with_a_path_stays_in_one_piece() -> None:
    whole = "cuda_driver.libraries[/usr/lib/x86_64-linux-gnu/libcuda.so.1].driver_release:"
    machines = [str(ROOT / "tests/hosts" / f"{name}.machine") for name in (DOCKER, DEGRADED)]
    done = backends("diff", *machines, "--only", "cuda_driver", environment={"COLUMNS": "50"})

    assert whole in done.stdout.split()[done.stdout.split().index("~") + 1 :]


def test_a_list_of_records_is_a_line_for_each_that_came_went_or_changed() -> None:
    machines = [str(ROOT / f"tests/hosts/{name}.machine") for name in ("zen4-two-sockets", "icelake-ec2")]
    only = [word for name in ("cpu.numa_nodes", "memory.swaps") for word in ("--only", name)]
    done = backends("diff", *machines, *only, environment={"COLUMNS": "100"})

    assert done.stdout.partition("\n\nfrom")[0].splitlines() == [
        "cpu",
        "  ~ numa_nodes",
        "      ~ node 0: cpus 0-15,32-47 → 0-7, memory_bytes 184.4 GiB → 30.95 GiB, distances 10, 32 → 10",
        "      - node 1: cpus 16-31,48-63, memory_bytes 184.4 GiB, distances 32, 10",
        "",
        "memory",
        "  - swaps: /swap.img: kind file, size_bytes 8 GiB, priority -2",
    ]


@pytest.mark.parametrize("form", ["table", "markdown", "html", "github", "gitlab"])
def test_what_a_new_driver_changes_is_one_finding(form: str) -> None:
    machines = [str(ROOT / f"tests/hosts/{DEGRADED}.machine"), HGX]
    done = backends("diff", *machines, "--only", "nvidia", "--only", "cuda_driver", "--format", form)
    text = html.unescape(done.stdout.replace("<wbr>", "").replace("\\_", "_"))

    assert text.count("570.86.15") == 1
    assert "also " in text and "cuda_driver.driver_release" in text


def test_json_has_every_value_whole(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    done = backends("diff", HGX, BROKEN, "--format", "json", "--output", str(path))
    assert (done.returncode, done.stdout) == (1, "")
    difference = msgspec.json.decode(path.read_bytes(), type=Difference)
    changes = {change.name: change for change in difference.changes}
    assert changes["cpu.cores"].before == 64
    assert isinstance(changes["cpu.features"].before, list)
    assert difference.before.name == HGX


def test_a_report_and_the_machine_that_it_is_of_do_not_differ(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(msgspec.json.encode(report_of(HGX)))
    assert backends("diff", str(path), HGX).returncode == 0


@pytest.mark.parametrize("form", formats.names("outcome"))
def test_every_format_tells_the_change_and_ends_with_1(form: str) -> None:
    done = backends("diff", HGX, BROKEN, "--only", "cpu.cores", "--format", form)
    assert done.returncode == 1
    assert done.stderr == ""
    assert "cores" in done.stdout
    assert "64" in done.stdout or form in ("nfd", "prometheus")  # which have no messages


@pytest.mark.parametrize(
    ("option", "glob", "said"),
    [
        ("--only", "cpuu.*", "did you mean 'cpu'?"),
        ("--only", "cpuu", "did you mean 'cpu'?"),
        ("--ignore", "cpu.featuers", "did you mean 'cpu.features'?"),
        ("--only", "cpu.corez.x", "did you mean 'cpu.cores'"),
    ],
)
def test_a_filter_that_no_name_fits_is_an_error(option: str, glob: str, said: str) -> None:
    done = backends("diff", HGX, BROKEN, option, glob)
    assert done.returncode == 2
    assert said in done.stderr


def test_color_marks_what_came_and_went() -> None:
    done = backends("diff", HGX, BROKEN, "--only", "cpu.amx", "--color", "always")
    assert "\033[31m-\033[0m amx" in done.stdout


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_page_but_for_what_has_no_spaces(width: int) -> None:
    done = backends("diff", HGX, BROKEN, environment={"COLUMNS": str(width)})
    for line in done.stdout.splitlines():
        assert len(line) <= width or len(line.split()) <= 2, line


@pytest.mark.parametrize("words", [("info", "--depth", "found", "--output"), ("snapshot",)])
def test_the_live_machine_is_compared_with_what_was_saved(words: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "now.json"
    backends(*words, str(path), *(() if words == ("snapshot",) else ("--format", "json")))
    done = backends("diff", str(path), "-", "--format", "json", "--ignore", "environment")
    changes = json.loads(done.stdout)["changes"]
    moving = ("memory.", "cpu.numa_nodes")  # a virtual machine may get and give memory
    assert [c["name"] for c in changes if not c["name"].startswith(moving)] == []


@pytest.mark.parametrize("width", ["40", "80", "100"])
def test_no_line_of_a_difference_is_a_command_to_githubs_runner(tmp_path: Path, width: str) -> None:
    report = report_of(HGX)
    said = "::stop-commands::token ##[group]x " * 4
    host = msgspec.structs.replace(report.probes["host"], version=said, facts={"os_name": said})
    changed = msgspec.structs.replace(report, probes={**report.probes, "host": host})
    path = tmp_path / "report.json"
    path.write_bytes(msgspec.json.encode(changed))

    done = backends("diff", HGX, str(path), environment={"COLUMNS": width})

    assert done.returncode == 1
    assert "stop-commands" in done.stdout
    for line in done.stdout.splitlines():
        assert not line.lstrip().startswith("::") and "##[" not in line


def test_what_is_merely_more_fails_nothing_where_ci_reads_it() -> None:
    done = backends("diff", BROKEN, HGX, "--only", "cpu.cores", "--format", "junit")
    assert 'failures="0"' in done.stdout and "note: cpu.cores was 8 and is 64" in done.stdout


def test_the_page_begins_with_what_became_worse_and_folds_the_rest() -> None:
    text = backends("diff", HGX, BROKEN, "--format", "html").stdout
    worse, _, rest = text.partition('id="otherwise"')
    assert "nvidia.devices[0000:43:00.0," in worse and "an instruction set is gone" in worse
    assert "<details" not in worse
    assert worse.index("severity high") < worse.index("severity medium")
    assert "cpu.governor" not in worse and "governor" in rest
    assert 'open=""' not in rest
