"""What each package takes, on composed machines; tests/compat compares it with threadpoolctl and torch."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.base.errors import BadInput
from mlbackends.host.host import Host
from mlbackends.model.records import Library, Presence
from mlbackends.survey import survey
from mlbackends.survey.requirement import Requirement, unmet
from mlbackends_probes import uses

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FakeLibrary


FLAGS = "avx avx2 avx512vl avx512_bf16 amx_bf16"
TEXT = "OpenBLAS 0.3.31  USE64BITINT DYNAMIC_ARCH NO_AFFINITY "
BY_PATH = "the packages of this Python environment open it by path"
PTHREADS = ("blas_memory_alloc", "blas_server_avail", "exec_blas_async")
BLAS = "/site/numpy.libs/libscipy_openblas64_-0a1b2c3d.so"
NUMPY = "/site/numpy/_core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so"
TORCH = "/site/torch/lib/libtorch_cpu.so"
SKLEARN = "/site/sklearn/utils/_openmp_helpers.cpython-311-x86_64-linux-gnu.so"
SCIPY = "/site/scipy/linalg/_fblas.cpython-311-x86_64-linux-gnu.so"


def elf(soname: str = "", *needed: str, **more: Any) -> dict[str, Any]:
    """Return what is extracted of a library. more: its rpath or runpath; other extracts."""
    paths = {name: more.pop(name, []) for name in ("rpath", "runpath")}
    headers = {"machine": "x86_64", "soname": soname, "needed": needed, **paths}
    return {"read_elf": headers, **more}


def openblas(
    soname: str,
    text: str = TEXT,
    kernels: tuple[str, ...] = ("HASWELL",),
    threads: tuple[str, ...] = PTHREADS,
) -> dict[str, Any]:
    defined = dict.fromkeys([*threads, *(f"dgemm_beta_{name}" for name in kernels)], True)
    return elf(soname, openblas_text=text, defined_symbols=defined)


def gomp(soname: str) -> dict[str, Any]:
    symbols = {"GOMP_parallel": True, "GOMP_barrier": True}
    return elf(soname, version_definitions=["GOMP_5.0"], defined_symbols=symbols)


def machine(folder: Path, files: dict[str, dict[str, Any]], flags: str = FLAGS, **told: Any) -> Host:
    """Return a machine of 4 CPUs, with files and what is extracted of them; packages are of version 1.0."""
    cpu = {"vendor_id": "AuthenticAMD", "cpu family": "25", "flags": flags, **told.pop("cpu", {})}
    for path in (*files, "/proc/cpuinfo"):
        (folder / f"root{path}").parent.mkdir(parents=True, exist_ok=True)
        (folder / f"root{path}").write_bytes(b"")
    for name in ("numpy", "scipy", "sklearn", "torch"):
        if (package := folder / "root" / "site" / name).is_dir():
            (package / "__init__.py").touch()
            dist = {"sklearn": "scikit_learn"}.get(name, name)
            (package.parent / f"{dist}-1.0.dist-info").mkdir()
    lines = "".join(f"{name}\t: {value}\n" for name, value in cpu.items())
    (folder / "root" / "proc" / "cpuinfo").write_text(lines)
    (folder / "extracts.json").write_text(json.dumps(files))
    record = {"python": {"path": ["/site"]}, "uname": {"machine": "x86_64"}, "platform": "linux"}
    (folder / "host.json").write_text(json.dumps(record | {"affinity": [0, 1, 2, 3]} | told))
    return Host(str(folder))


def table(host: Host) -> dict[str, Any]:
    return survey(("uses",), host).probes["uses"].facts


NUMPYS = {
    NUMPY: elf("", "libscipy_openblas64_-0a1b2c3d.so", rpath=["$ORIGIN/../../numpy.libs"]),
    BLAS: openblas("libscipy_openblas64_-0a1b2c3d.so"),
}


def test_numpy_takes_the_openblas_of_its_wheel(tmp_path: Path) -> None:
    assert table(machine(tmp_path, NUMPYS)) == {
        "numpy": {
            "version": "1.0",
            "blas": {
                "library": "openblas",
                "version": "0.3.31",
                "core": "Haswell",
                "threads": 4,
                "threads_source": "the affinity mask",
                "runtime": "pthreads",
                "path": BLAS,
            },
        }
    }


def test_the_front_end_of_a_distribution_leads_to_the_blas_behind_it(tmp_path: Path) -> None:
    files = {
        NUMPY: elf("", "libblas.so.3"),
        "/usr/lib/libblas.so.3": elf("libblas.so.3", "libopenblas.so.0"),
        "/usr/lib/libopenblas.so.0": openblas(
            "libopenblas.so.0", "OpenBLAS 0.3.21 Zen", threads=PTHREADS[:2]
        ),
    }

    blas = table(machine(tmp_path, files))["numpy"]["blas"]

    assert (blas["library"], blas["path"]) == ("openblas", "/usr/lib/libopenblas.so.0")
    assert (blas["version"], blas["core"], blas["runtime"]) == ("0.3.21", "Zen", "openmp")


def test_in_a_conda_environment_the_link_leads_to_mkl(tmp_path: Path) -> None:
    site = "/env/lib/python3.11/site-packages"
    files = {
        NUMPY.replace("/site", site): elf("", "libcblas.so.3", rpath=["$ORIGIN/../../../../"]),
        "/env/lib/libmkl_rt.so.2": elf("libmkl_rt.so.2"),
    }
    machine(tmp_path, files, python={"path": [site], "prefix": "/env"})
    (tmp_path / f"root{site}" / "numpy" / "__init__.py").touch()
    (tmp_path / f"root{site}" / "numpy-2.3.0.dist-info").mkdir()
    meta = tmp_path / "root" / "env" / "conda-meta"
    meta.mkdir()
    (meta / "mkl-2023.1.0-h213fc3f_46344.json").write_text('{"files": ["lib/libmkl_rt.so.2"]}')
    (tmp_path / "root" / "env" / "lib" / "libcblas.so.3").symlink_to("libmkl_rt.so.2")

    facts = table(Host(str(tmp_path)))

    assert facts["numpy"]["version"] == "2.3.0"
    blas = facts["numpy"]["blas"]
    assert (blas["library"], blas["version"]) == ("mkl", "2023.1.0")
    assert blas["path"] == "/env/lib/libmkl_rt.so.2"


def test_scikit_learn_takes_scipys_blas_and_an_openmp_of_its_own(tmp_path: Path) -> None:
    theirs = "/site/scipy.libs/libscipy_openblas-0a1b2c3d.so"
    own = "/site/scikit_learn.libs/libgomp-e985bcbb.so.1.0.0"
    files = {
        SCIPY: elf("", "libscipy_openblas-0a1b2c3d.so", rpath=["$ORIGIN/../../scipy.libs"]),
        theirs: openblas("libscipy_openblas-0a1b2c3d.so"),
        SKLEARN: elf("", "libgomp-e985bcbb.so.1.0.0", rpath=["$ORIGIN/../../scikit_learn.libs"]),
        own: gomp("libgomp-e985bcbb.so.1.0.0"),
    }

    facts = table(machine(tmp_path, files))

    assert facts["scipy"]["blas"] == facts["scikit_learn"]["blas"]
    assert facts["scikit_learn"]["openmp"]["path"] == own
    assert "openmp" not in facts["scipy"]


@pytest.mark.parametrize(
    ("flags", "cpu", "kernels", "core"),
    [
        ("avx avx2", {}, ("HASWELL", "ZEN"), "Zen"),
        ("avx avx2", {}, ("HASWELL",), "Haswell"),
        ("avx avx2", {"vendor_id": "GenuineIntel", "cpu family": "6"}, ("HASWELL", "ZEN"), "Haswell"),
        ("avx avx2 avx512vl avx512_bf16", {}, ("SKYLAKEX", "HASWELL"), "SkylakeX"),
        ("avx avx2 avx512vl avx512_bf16", {}, ("COOPERLAKE", "SKYLAKEX"), "Cooperlake"),
        (FLAGS, {"vendor_id": "GenuineIntel", "cpu family": "6"}, ("SKYLAKEX", "HASWELL"), "SkylakeX"),
        # One version takes Sapphire Rapids' kernels on a later model, another one Cooper Lake's.
        (FLAGS, {"vendor_id": "GenuineIntel"}, ("SAPPHIRERAPIDS", "COOPERLAKE"), None),
        ("avx avx2", {"cpu family": "26"}, ("HASWELL", "ZEN"), None),
        ("avx", {}, ("HASWELL", "SANDYBRIDGE"), None),
    ],
)  # fmt: skip
def test_the_kernels_of_openblas_follow_from_the_processor_and_the_file(
    tmp_path: Path, flags: str, cpu: dict[str, str], kernels: tuple[str, ...], core: str | None
) -> None:
    files = NUMPYS | {BLAS: openblas("libscipy_openblas64_-0a1b2c3d.so", kernels=kernels)}

    blas = table(machine(tmp_path, files, flags, cpu=cpu))["numpy"]["blas"]

    assert blas.get("core") == core


def test_on_macos_numpy_takes_the_framework_that_it_was_built_for(tmp_path: Path) -> None:
    framework = "/System/Library/Frameworks/Accelerate.framework/Versions/A/Resources/Info.plist"
    machine(tmp_path, {NUMPY: {}, framework: {}}, platform="darwin")
    config = tmp_path / "root" / "site" / "numpy" / "__config__.py"
    config.write_text('"blas": {"name": "accelerate", "version": "unknown"}')

    assert table(Host(str(tmp_path)))["numpy"]["blas"]["library"] == "accelerate"


@pytest.mark.parametrize(
    ("symbols", "threads"),
    [((), 4), (PTHREADS[:1], 1), (PTHREADS[:2], 3), (PTHREADS, 2)],
    ids=["hidden", "serial", "openmp", "pthreads"],
)
def test_the_threads_of_openblas_follow_the_rule_of_its_build(
    tmp_path: Path, symbols: tuple[str, ...], threads: int
) -> None:
    files = NUMPYS | {BLAS: openblas("libscipy_openblas64_-0a1b2c3d.so", threads=symbols)}
    environment = {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "3"} if len(symbols) > 1 else {}

    blas = table(machine(tmp_path, files, environment=environment))["numpy"]["blas"]

    assert blas["threads"] == threads


def test_a_build_for_few_threads_takes_no_more(tmp_path: Path) -> None:
    machine(tmp_path, NUMPYS)
    config = tmp_path / "root" / "site" / "numpy" / "__config__.py"
    config.write_text('"openblas configuration": "OpenBLAS 0.3.31 DYNAMIC_ARCH Haswell MAX_THREADS=2"')

    blas = table(Host(str(tmp_path)))["numpy"]["blas"]

    assert (blas["threads"], blas["threads_source"]) == (2, "it was built for 2")


# ---- who wins, and who speaks ------------------------------------------------------------------

WITH_TORCH = {
    TORCH: elf("libtorch_cpu.so", "libgomp.so.1", "libc.so.6", runpath=["$ORIGIN"]),
    "/site/torch/lib/libgomp.so.1": gomp("libgomp.so.1"),
    "/site/stray.libs/libgomp-99999999.so.1": gomp("libgomp-99999999.so.1"),
    "/opt/lib/libomp.so.5": elf("libomp.so.5"),
}


def winners(host: Host, probe: str) -> dict[str, Library]:
    return {
        library.path: library for library in survey((probe,), host).probes[probe].libraries if library.wins
    }


def test_one_runtime_of_openmp_wins_for_the_package_that_takes_it(tmp_path: Path) -> None:
    host = machine(tmp_path, WITH_TORCH, environment={"LD_LIBRARY_PATH": "/opt/lib"})

    ((path, winner),) = winners(host, "openmp").items()

    assert path == "/site/torch/lib/libgomp.so.1"
    assert (winner.used_by, winner.wins_because) == (("torch",), "torch uses it: " + BY_PATH)


def test_what_a_wheel_brings_is_taken_by_that_wheel(tmp_path: Path) -> None:
    own = "/site/xgboost.libs/libgomp-e985bcbb.so.1.0.0"
    host = machine(tmp_path, WITH_TORCH | {own: gomp("libgomp-e985bcbb.so.1.0.0")})
    info = tmp_path / "root" / "site" / "xgboost-3.0.dist-info"
    info.mkdir()
    (info / "RECORD").write_text(f"{own.removeprefix('/site/')},,\n")

    taken = {library.used_by for library in winners(host, "openmp").values()}

    assert taken == {("torch",), ("xgboost",)}


def test_without_a_package_the_loaders_copy_wins(tmp_path: Path) -> None:
    files = {"/opt/lib/libomp.so.5": elf("libomp.so.5")}
    host = machine(tmp_path, files, environment={"LD_LIBRARY_PATH": "/opt/lib"})

    assert list(winners(host, "openmp")) == ["/opt/lib/libomp.so.5"]


@pytest.mark.parametrize(
    ("preloaded", "taken"),
    [
        ("/opt/lib/libiomp5.so", "/opt/lib/libiomp5.so"),  # it has the functions of libgomp too
        ("/opt/lib/libgomp.so.1", "/opt/lib/libgomp.so.1"),
        ("/opt/lib/libjemalloc.so.2", "/site/torch/lib/libgomp.so.1"),
    ],
)
def test_what_is_preloaded_comes_first(tmp_path: Path, preloaded: str, taken: str) -> None:
    files = WITH_TORCH | {preloaded: gomp(preloaded.rpartition("/")[2])}
    host = machine(tmp_path, files, environment={"LD_PRELOAD": preloaded})

    assert list(winners(host, "openmp")) == [taken]


def test_what_the_package_itself_loads_first_is_taken_without_a_runpath(tmp_path: Path) -> None:
    files = WITH_TORCH | {TORCH: elf("libtorch_cpu.so", "libgomp.so.1")}

    assert list(winners(machine(tmp_path, files), "openmp")) == ["/site/torch/lib/libgomp.so.1"]


def test_a_runpath_gives_way_to_ld_library_path(tmp_path: Path) -> None:
    files = WITH_TORCH | {"/opt/lib/libgomp.so.1": gomp("libgomp.so.1")}
    host = machine(tmp_path, files, environment={"LD_LIBRARY_PATH": "/opt/lib"})

    assert list(winners(host, "openmp")) == ["/opt/lib/libgomp.so.1"]


def test_a_copy_that_nobody_takes_does_not_meet_a_requirement(tmp_path: Path) -> None:
    newer = openblas("libopenblas.so.0", TEXT.replace("0.3.31", "0.3.99"))
    files = NUMPYS | {"/opt/lib/libopenblas.so.0": newer}
    host = machine(tmp_path, files, environment={"LD_LIBRARY_PATH": "/opt/lib"})
    need = Requirement.parse("openblas>=0.3.32")

    report = survey(("openblas",), host)

    assert report.probes["openblas"].version == "0.3.31"
    assert "0.3.31, required: >= 0.3.32" in unmet(report, need)


# ---- a process that runs -------------------------------------------------------------------------

PROGRAM = """
import ctypes, sys
for path in sys.argv[1:]:
    ctypes.CDLL(path)
print("ready", flush=True)
sys.stdin.read()
"""


def test_of_a_process_in_a_container_its_own_files_are_read(
    tmp_path: Path, fake_library: FakeLibrary
) -> None:
    source = 'const char text[] = "OpenBLAS 0.3.29 DYNAMIC_ARCH ";\n'
    built = fake_library("contained_blas", "libopenblas.so.0", source=source)
    path = tmp_path / "libopenblas.so.0"
    script = 'mount -t tmpfs none "$1" && cp "$2" "$1/libopenblas.so.0" && shift 2 && exec "$@"'
    program = [sys.executable, "-S", "-c", PROGRAM, str(path)]
    with subprocess.Popen(
        ["unshare", "-rm", "sh", "-c", script, "sh", tmp_path, built, *program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            pytest.skip("this user may make no mount namespace")
        report = survey(("openblas",), Host(pid=process.pid, python={})).probes["openblas"]
        process.kill()

    assert not path.exists()
    assert (report.presence, report.version) == (Presence.FOUND, "0.3.29")


def of_process(
    names: tuple[str, ...], python: dict[str, Any], *opened: Path, **variables: str
) -> dict[str, Any]:
    with subprocess.Popen(
        [sys.executable, "-S", "-c", PROGRAM, *opened],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=variables,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        report = survey(names, Host(pid=process.pid, python=python))
        process.kill()
    return dict(report.probes)


def test_of_a_process_versions_and_threads_are_told(fake_library: FakeLibrary) -> None:
    source = 'const char *openblas_get_config(void) { return "OpenBLAS 0.3.29 Haswell"; }\n'
    path = fake_library("mapped_blas", "libopenblas.so.0", source=source)

    probes = of_process(("openblas", "uses"), {}, path, OPENBLAS_NUM_THREADS="1")

    assert probes["openblas"].version == "0.3.29"
    blas = probes["uses"].facts["process"]["blas"]
    assert (blas["path"], blas["version"]) == (str(path), "0.3.29")
    assert (blas["threads"], blas["threads_source"]) == (1, "OPENBLAS_NUM_THREADS is 1")


def test_without_a_process_everything_is_ours_on_every_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.stat", lambda *_, **__: (_ for _ in ()).throw(FileNotFoundError))

    assert Host(environment={}).is_ours  # macOS and Windows have no /proc
    assert not Host(pid=1, environment={}).is_ours


def test_a_process_that_may_not_be_looked_at_is_an_error() -> None:
    with pytest.raises(BadInput, match="what process 2147483647 has mapped cannot be read"):
        survey(("openmp",), Host(pid=2**31 - 1, python={}))


def test_a_package_that_the_process_has_not_loaded_is_absent(
    tmp_path: Path, fake_library: FakeLibrary
) -> None:
    built = fake_library("torch", "libtorch_cpu.so", source="int nothing;\n")
    library = tmp_path / "torch" / "lib" / "libtorch_cpu.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(built.read_bytes())
    for name in ("torch", "numpy", "opt_einsum"):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / f"{name}-1.0.dist-info").mkdir()
    (tmp_path / "numpy" / "extension.so").write_bytes(built.read_bytes())
    python = {"path": [str(tmp_path)]}
    names = ("torch", "numpy", "opt_einsum")

    without = of_process(names, python)
    with_torch = of_process(names, python, library)

    for probe, message in (
        (without["torch"], "the process has no copy of it mapped"),
        (with_torch["numpy"], f"the process has mapped no file of {tmp_path}/numpy"),
    ):
        assert (probe.presence, probe.version, probe.facts) == (Presence.ABSENT, "", {})
        assert [(reason.code, reason.message) for reason in probe.reasons] == [("not-mapped", message)]
    assert with_torch["torch"].presence is Presence.FOUND
    # What has no compiled file leaves no trace in a process.
    assert without["opt_einsum"].presence is Presence.FOUND


def test_a_library_that_is_nowhere_is_not_mapped() -> None:
    """Whether there is one on the disk as well says nothing of a process."""
    (reason,) = of_process(("nccl",), {})["nccl"].reasons

    assert (reason.code, reason.message[:15]) == ("not-mapped", "the process has")


def test_a_file_that_was_replaced_since_has_no_version(tmp_path: Path, fake_library: FakeLibrary) -> None:
    built = fake_library("nothing", "libopenblas.so.0", source="int one(void) { return 1; }\n")
    path = tmp_path / "libopenblas.so.0"
    path.write_bytes(built.read_bytes())
    with subprocess.Popen(
        [sys.executable, "-S", "-c", PROGRAM, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        path.unlink()
        path.write_bytes(built.read_bytes() + b"OpenBLAS 0.3.30 Haswell")
        report = survey(("openblas",), Host(pid=process.pid, python={})).probes["openblas"]
        process.kill()

    (library,) = (library for library in report.libraries if library.path == str(path))
    assert (library.version, [reason.code for reason in library.reasons]) == ("", ["replaced"])


def test_a_table_that_cannot_be_made_costs_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uses, "derive", lambda *_: 1 / 0)

    probes = survey(("uses", "openblas"), machine(tmp_path, NUMPYS)).probes

    assert probes["uses"].failure is not None
    assert probes["uses"].failure.message == "ZeroDivisionError: division by zero"
    assert probes["openblas"].presence is Presence.FOUND
