"""What starting costs, as the names of modules: a number of milliseconds would depend on the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "asyncio",
    "cpuinfo",
    "cuda",
    "email",
    "http",
    "importlib.metadata",
    "importlib.resources",
    "logging",
    "multiprocessing",
    "numpy",
    "packaging",
    "pkg_resources",
    "psutil",
    "pynvml",
    "rich",
    "socket",
    "ssl",
    "tomllib",
    "torch",
    "urllib.request",
    "xml",
}


def loaded(*arguments: str) -> set[str]:
    """Every module that a run of the command has loaded at its end, by a clean interpreter."""
    program = (
        "import sys; before = set(sys.modules)\n"
        f"sys.argv = ['backends', *{arguments!r}]\n"
        "from mlbackends_cli import program\n"
        "try: program()\n"
        "except SystemExit: pass\n"
        "print('\\n', *sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path("/")
    )
    return set(done.stderr.split())


def tops(modules: set[str]) -> set[str]:
    return {name for name in modules for heavy in HEAVY if name == heavy or name.startswith(f"{heavy}.")}


def test_version_loads_nothing_but_the_package() -> None:
    assert loaded("--version") == {
        "mlbackends", "mlbackends.base", "mlbackends.base.version", "mlbackends_cli",
    }  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("info", "--depth", "found", "--format", "json"),
        ("info", "--depth", "found", "--format", "jsonl"),
        ("info", "--depth", "found", "--get", "cpu.capability"),
        ("info", "--depth", "found", "--format", "slurm"),
    ],
    ids=" ".join,
)
def test_what_scripts_call_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    modules = loaded(*arguments)

    # The tables of what packages open are TOML; what is not inspected needs none.
    assert {name.partition(".")[0] for name in tops(modules)} <= (
        {"tomllib"} if "--format" in arguments else set()
    )
    assert not modules & {"subprocess", "json", "tempfile", "pathlib", "dataclasses", "difflib"}
    # A name of `mlbackends` that is not a module imports them.
    assert "mlbackends.switches" not in modules


#: What `info --depth found --format json` does not need on Linux: it reads files, and judges nothing.
#: Only the state of the kernel's clock is in no file; ctypes asks for it, which takes 2 ms to load.
NOT_FOR_FINDING = {
    "ClusterShell",
    "mlbackends.audit",
    "mlbackends.fleet",
    "mlbackends.host.cpu.other_systems",
    "mlbackends.host.recording",
    "mlbackends.host.windows",
    "mlbackends.isolation",
    "mlbackends.libraries.macho",
    "mlbackends.libraries.pe",
    "mlbackends.libraries.vulkan",
    "mlbackends.libraries.windows",
    "mlbackends.survey.requirement",
    "mlbackends.survey.schema",
    "mlbackends.tracing",
}


@pytest.mark.skipif(sys.platform != "linux", reason="another system needs its own modules")
def test_finding_on_linux_loads_nothing_of_other_systems_and_nothing_that_opens_or_judges() -> None:
    modules = loaded("info", "--depth", "found", "--format", "json")

    assert {
        name
        for name in modules
        for unneeded in NOT_FOR_FINDING
        if name == unneeded or name.startswith(f"{unneeded}.")
    } == set()


@pytest.mark.parametrize(
    "arguments",
    [
        ("diff", "-", "-", "--format", "json"),
        ("doctor", "--format", "junit"),
        ("explain", "reasons", "--format", "json"),
        ("flags", "list", "--format", "json"),
        ("top", "--once", "--interval", "0.1", "--format", "json"),
    ],
    ids=" ".join,
)
def test_only_pages_for_people_are_rendered_by_rich(arguments: tuple[str, ...]) -> None:
    assert not {name for name in loaded(*arguments) if name.partition(".")[0] == "rich"}


@pytest.mark.parametrize("device", ["cpu", "sm90"])
def test_explaining_who_computes_attention_loads_no_array_and_nothing_heavy(device: str) -> None:
    arguments = ("sdpa", "explain", "--shape", "2,8,1024,64", "--device", device)
    modules = loaded(*arguments, "--format", "json")

    ledger = {"tomllib"}  # the reports of wrong numbers
    assert {name.partition(".")[0] for name in tops(loaded(*arguments))} <= {"logging", "rich", *ledger}
    assert {name.partition(".")[0] for name in tops(modules)} <= ledger
    assert not modules & {"subprocess", "json", "tempfile", "pathlib", "dataclasses", "ml_dtypes"}
    # On a GPU that is not here the CUDA libraries are searched, to tell what is not installed.
    assert device == "sm90" or "mlbackends.host.host" not in modules


def test_the_full_page_loads_nothing_that_is_heavy() -> None:
    assert {name.partition(".")[0] for name in tops(loaded("info"))} <= {"logging", "rich", "tomllib"}


def test_help_imports_no_command() -> None:
    groups = {
        "attention",
        "fleet",
        "report",
        "switches",
        "trace",
    }  # `commands` of each is a package
    modules = {name for name in loaded("--help") if name.startswith("mlbackends_cli.")}

    assert {f"mlbackends_cli.{group}.commands" for group in groups} <= modules
    assert not {name for name in modules if ".commands." in name}


def test_a_named_probe_imports_no_other() -> None:
    probes = {name for name in loaded("info", "cpu", "--depth", "found") if "_probes." in name}

    assert probes == {"mlbackends_probes.cpu"}


def test_importing_the_library_loads_no_record() -> None:
    program = "import sys; before = set(sys.modules); import mlbackends; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert set(done.stdout.split()) == {"mlbackends", "mlbackends.base", "mlbackends.base.version"}


def modules_of(program: str) -> set[str]:
    """Every module that a program has loaded at its end, by a clean interpreter."""
    program = f"import sys; before = set(sys.modules)\n{program}\nprint(*set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path("/"),
    )
    return set(done.stdout.split())


COSTLY = {
    *HEAVY, "click", "dataclasses", "inspect", "json", "msgspec", "pathlib", "subprocess",
}  # fmt: skip


def test_reading_a_switch_loads_the_switches_alone() -> None:
    modules = modules_of("import mlbackends; mlbackends.cudnn.enabled; mlbackends.fp32_precision")

    assert modules & COSTLY == set()
    ours = {name.rpartition(".")[0] for name in modules if name.startswith("mlbackends.")}
    assert ours == {"mlbackends", "mlbackends.base", "mlbackends.switches"}


def test_reading_every_switch_loads_nothing_heavy() -> None:
    program = """
import mlbackends
from mlbackends.switches.table import SWITCHES, PROBED
for name, flag in SWITCHES.items():
    if flag.default is not PROBED:
        mlbackends.flag_store.read(name)
        if flag.reached == "attribute":
            place = mlbackends
            for part in name.split("."):
                place = getattr(place, part)
with mlbackends.cudnn.flags(enabled=True, benchmark_limit=None), mlbackends.mkldnn.flags(enabled=True):
    mlbackends.cudnn.benchmark = True
"""
    modules = modules_of(program)

    # python_native's registry of DSLs looks at packages' versions.
    assert tops(modules) == set()
    assert not modules & {"subprocess", "click"}


def test_using_the_switches_of_attention_loads_no_array() -> None:
    program = """
import mlbackends
with mlbackends.sdpa_kernel(mlbackends.SDPBackend.MATH):
    assert not mlbackends.cuda.flash_sdp_enabled()
mlbackends.cuda.preferred_blas_library()
mlbackends.set_float32_matmul_precision("high")
"""
    assert modules_of(program) & {"numpy", "torch", "subprocess"} == set()
