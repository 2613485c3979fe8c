"""Where faults come from: another torch, another Python, an older C library or driver."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from mlbackends.host.host import Host
from mlbackends.host.python.packages import Distribution
from mlbackends.loading.fit import driver_faults
from mlbackends.loading.packages import resolve
from mlbackends.loading.torch_builds import builds, defining, in_words, is_of_torch
from mlbackends.model.loading import Fault, LoadedFile, Need, PackageLoading, TargetMachine, Verdict

needs_compiler = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)
LOGGER = "_ZN3c1013MessageLoggerC1EPKciib"
CHECK = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"


def compile_library(path: Path, code: str, *options: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    ignored = ["-Wl,--unresolved-symbols=ignore-all", "-Wl,--no-as-needed", f"-Wl,-soname,{path.name}"]
    command = ["cc", "-shared", "-fPIC", "-xc", "-", "-xnone", *ignored, "-o", str(path), *options]
    subprocess.run(command, input=code.encode(), check=True)
    return path


def using(*symbols: str) -> str:
    """Return the code of an extension module `_C` that uses functions."""
    calls = "".join(f"extern void {name}(void); void *use{i} = {name};" for i, name in enumerate(symbols))
    return f"{calls} void *PyInit__C(void) {{ return 0; }}"


def install(site: Path, name: str, version: str, *files: str, tag: str = "", requires: str = "") -> None:
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n" + requires)
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in files))
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nTag: {tag}\n")


def answer(site: Path, name: str) -> PackageLoading:
    version = ".".join(map(str, sys.version_info[:3]))
    host = Host(python={"executable": sys.executable, "version": version, "path": [str(site)]})
    return resolve(host, [name]).packages[0]


def beside_torch(
    site: Path, torch: str, *symbols: str, requires: str = "", linked: str = "", name: str = "ext"
) -> Fault:
    """Return the fault of an extension that uses symbols beside a stub of a torch."""
    c10 = compile_library(site / "torch/lib/libc10.so", "")
    (site / "torch/__init__.py").write_text("")
    (site / "torch/version.py").write_text(f"__version__ = '{torch}'\n")
    install(site, "torch", torch.partition("+")[0], "torch/__init__.py", "torch/lib/libc10.so")
    others = [str(compile_library(site / "gone" / linked, ""))] if linked else []
    linking = (str(c10), f"-Wl,-rpath,{c10.parent}", *others)
    compile_library(site / f"{name}/_C.abi3.so", using(*symbols), *linking)
    (site / f"{name}/__init__.py").write_text("from . import _C\n")
    install(site, name, "1.0", f"{name}/__init__.py", f"{name}/_C.abi3.so", requires=requires)
    [fault] = answer(site, name if name == "ext" else str(site / name / "_C.abi3.so")).faults
    return fault


def test_the_table_has_what_public_tickets_report() -> None:
    # Dao-AILab/flash-attention#2219 and eugr/spark-vllm-docker#141, and pytorch#152790's C++ strings.
    assert {build.version for build in defining([LOGGER])} == {"2.10.0"}
    assert defining([CHECK])[-1].version == "2.9.1"
    strings = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"
    assert defining([strings])[0].version == "2.7.0"  # until then PyPI's builds had the older C++ ABI
    assert defining(["_ZN3c1010TensorImplD1Ev"]) == builds()
    assert not is_of_torch("_ZN6vision3nmsEv") and not is_of_torch("cudaMalloc")


def test_builds_that_are_neighbours_are_a_range() -> None:
    chosen = [build for build in builds() if build.version != "2.9.0"]
    assert in_words(chosen) == "2.4.0 to 2.8.0 and 2.9.1 to 2.15.0"


@needs_compiler
@pytest.mark.parametrize(
    ("torch", "symbol", "cause", "requirement"),
    [
        ("2.13.0+cu130", LOGGER, "is in torch 2.10.0,", "torch==2.10.0"),
        ("2.11.0+cu130", CHECK, "to 2.9.1,", "torch==2.9.1"),
        ("2.13.0+cpu", "_ZN3c109NoSuchOneEv", "no build for PyPI from torch 2.4.0 to 2.15.0 does", ""),
        (
            "2.9.1+cu128",
            "torch_call_dispatcher",
            "stable ABI, of torch 2.10.0 or newer",
            "torch==2.15.0",
        ),
        ("2.10.0+cu128", LOGGER, "defines", ""),
    ],
)
def test_a_symbol_of_another_torch_has_the_builds_that_define_it(
    tmp_path: Path, torch: str, symbol: str, cause: str, requirement: str
) -> None:
    fault = beside_torch(tmp_path, torch, symbol)
    assert (fault.code, fault.name) == ("missing-symbol", symbol)
    assert f"torch {torch} " in fault.cause and cause in fault.cause
    assert fault.command.endswith(requirement) if requirement else not fault.command


@needs_compiler
@pytest.mark.parametrize(
    ("torch", "linked", "cause", "end"),
    [
        (
            "2.13.0+cpu",
            "libc10_cuda.so",
            "torch 2.13.0+cpu is the build for CPUs",
            "2.13.0 --force-reinstall",
        ),
        ("2.13.0+cu130", "libcudart.so.12", "the installed torch 2.13.0+cu130 for CUDA 13.", "torch==2.10.0"),
    ],
)
def test_a_file_for_another_cuda_than_torchs(
    tmp_path: Path, torch: str, linked: str, cause: str, end: str
) -> None:
    fault = beside_torch(tmp_path, torch, "_ZN3c1010TensorImplD1Ev", linked=linked)
    assert (fault.code, fault.name) == ("missing-library", linked)
    assert cause in fault.cause and fault.command.endswith(end)


@needs_compiler
@pytest.mark.parametrize(
    ("torch", "linked", "tag"), [("2.13.0+cpu", "libc10_cuda.so", "cpu"), ("2.13.0+cu130", "", "cu130")]
)
def test_what_pytorch_builds_with_torch_comes_from_the_index_of_that_torch(
    tmp_path: Path, torch: str, linked: str, tag: str
) -> None:
    symbol = "_ZN3c1010TensorImplD1Ev" if linked else LOGGER
    fault = beside_torch(tmp_path, torch, symbol, linked=linked, name="torchaudio")
    index = f"--index-url https://download.pytorch.org/whl/{tag}"
    assert fault.command.endswith(f"install torchaudio torch==2.13.0 --upgrade {index}")


@needs_compiler
def test_the_torch_that_a_package_requires_is_preferred(tmp_path: Path) -> None:
    fault = beside_torch(tmp_path, "2.11.0+cu130", CHECK, requires="Requires-Dist: torch==2.8.0\n")
    assert fault.command.endswith("install torch==2.8.0")


@needs_compiler
def test_a_file_for_another_python_is_not_importable(tmp_path: Path) -> None:
    compile_library(tmp_path / "thing/_C.cpython-38-x86_64-linux-gnu.so", using())
    (tmp_path / "thing/__init__.py").write_text("from thing._C import f\n")
    install(tmp_path, "thing", "1.0", "thing/__init__.py", "thing/_C.cpython-38-x86_64-linux-gnu.so")
    package = answer(tmp_path, "thing")
    assert package.verdict is Verdict.FAILS
    [fault] = package.faults
    assert fault.code == "wrong-python" and "built for Python 3.8; this is Python 3." in fault.cause
    child = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import thing"]
    assert fault.message in subprocess.run(child, check=False, capture_output=True, text=True).stderr


@needs_compiler
def test_a_python_without_its_lock_has_files_of_its_own(tmp_path: Path) -> None:
    site = tmp_path / "lib/python3.13t/site-packages"
    tags = {"own": "313t", "other": "313"}
    for name, tag in tags.items():
        file = f"{name}/_C.cpython-{tag}-{platform.machine()}-linux-gnu.so"
        compile_library(site / file, using())
        (site / name / "__init__.py").write_text("from . import _C\n")
        install(site, name, "1.0", f"{name}/__init__.py", file)
    host = Host(python={"executable": "python", "version": "3.13.1", "path": [str(site)]})
    own, other = resolve(host, [*tags]).packages
    assert (own.verdict, other.verdict) == (Verdict.LOADS, Verdict.FAILS)
    assert "built for Python 3.13; this is Python 3.13t" in other.faults[0].cause


@needs_compiler
def test_a_wheel_of_a_newer_stable_abi_is_recognised(tmp_path: Path) -> None:
    compile_library(tmp_path / "thing/_C.abi3.so", using("PyNoSuch_Function"))
    (tmp_path / "thing/__init__.py").write_text("from thing import _C\n")
    install(tmp_path, "thing", "1.0", "thing/__init__.py", "thing/_C.abi3.so", tag="cp399-abi3-linux_x86_64")
    [fault] = answer(tmp_path, "thing").faults
    assert fault.code == "wrong-python" and "Python 3.99 and newer; this is Python 3." in fault.cause
    assert fault.command.endswith("--force-reinstall --no-deps thing==1.0")


@needs_compiler
def test_versions_of_a_newer_glibc_are_one_fault(tmp_path: Path) -> None:
    script = tmp_path / "versions"
    script.write_text("GLIBC_2.98 { global: a; }; GLIBC_2.99 { global: b; } GLIBC_2.98;")
    libc = compile_library(
        tmp_path / "new/libc.so.6", "void a(){} void b(){}", f"-Wl,--version-script,{script}"
    )
    compile_library(tmp_path / "thing/_C.abi3.so", using("a", "b"), str(libc), "-nostdlib")
    (tmp_path / "thing/__init__.py").write_text("from thing import _C\n")
    install(tmp_path, "thing", "1.0", "thing/__init__.py", "thing/_C.abi3.so")
    [fault] = answer(tmp_path, "thing").faults
    if fault.code != "missing-library":  # musl has no libc.so.6
        assert fault.code == "glibc-too-old" and {fault.name, *fault.others} == {"GLIBC_2.98", "GLIBC_2.99"}
        assert "built for glibc 2.99 or newer; this machine has" in fault.cause


def test_a_driver_that_is_too_old_for_the_cuda_that_files_need() -> None:
    files = [LoadedFile("/site/_C.so", (Need("libcudart.so.13", "/site/libcudart.so.13"),))]
    dist = Distribution("thing", "1.0", "", "")
    [fault] = driver_faults(dist, files, "550.54.15")
    assert "CUDA 13 needs driver 580 or newer; the driver is 550.54.15" in fault.cause
    assert not [*driver_faults(dist, files, "580.65.06")] and not [*driver_faults(dist, files, "")]


@needs_compiler
def test_a_machine_with_an_older_glibc_is_asked_about(tmp_path: Path) -> None:
    compile_library(tmp_path / "thing/_C.abi3.so", using("memfd_create"), "-Wl,--no-as-needed", "-lc")
    (tmp_path / "thing/__init__.py").write_text("from thing import _C\n")
    install(tmp_path, "thing", "1.0", "thing/__init__.py", "thing/_C.abi3.so")
    host = Host(python={"executable": sys.executable, "version": "3.11.2", "path": [str(tmp_path)]})
    if not str(host.system("libc")).startswith("glibc"):
        pytest.skip("needs glibc")
    older, enough = (TargetMachine("", glibc=version) for version in ("2.26", "2.27"))
    [package] = resolve(host, ["thing"], targets=[older]).packages
    assert package.verdict is Verdict.FAILS and package.faults[0].name == "GLIBC_2.27"
    assert resolve(host, ["thing"], targets=[enough]).packages[0].verdict is Verdict.LOADS
