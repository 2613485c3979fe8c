from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.base import registry
from mlbackends.host.host import Host
from mlbackends.model.records import Presence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.conftest import FakeLibrary
    from tests.probes.conftest import Asked

openmp = registry.load("mlbackends_probes", "openmp")


GNU = ("SECOND=1",)


def llvm(banner: str = "") -> tuple[str, ...]:
    return ("LLVM", f'BANNER="{banner}"')


def test_a_gnu_runtime_runs_a_region_in_two_threads(asked: Asked, fake_library: FakeLibrary) -> None:
    path = fake_library("openmp", "libgomp.so.1", defines=GNU)

    report, library = asked("openmp", path)

    assert library.presence is Presence.USABLE
    assert report.facts == {
        "runtime": "gnu",
        "max_threads": 8,
        "processors": 4,
        "specification_date": 201511,
    }


def test_threads_that_share_a_number_are_wrong(asked: Asked, fake_library: FakeLibrary) -> None:
    path = fake_library("openmp", "libgomp.so.1", defines=("SECOND=0",))

    _, library = asked("openmp", path)

    assert library.presence is Presence.LOADABLE
    assert [reason.code for reason in library.reasons] == ["wrong-result"]


def test_intels_runtime_tells_its_version_on_stderr(asked: Asked, fake_library: FakeLibrary) -> None:
    banner = "Intel(R) OMP version: 5.0.20260828\\nIntel(R) OMP API version: 5.2 (202111)\\n"
    path = fake_library("openmp", "libiomp5.so", defines=llvm(banner))

    report, library = asked("openmp", path)

    assert (library.presence, library.version) == (Presence.USABLE, "5.0.20260828")
    assert report.facts["runtime"] == "intel"
    assert report.facts["specification_date"] == 202111


def test_the_date_that_llvms_runtime_always_gives_is_no_version(
    asked: Asked, fake_library: FakeLibrary
) -> None:
    banner = "LLVM OMP version: 5.0.20140926\\nLLVM OMP API version: 5.1 (202011)\\n"
    path = fake_library("openmp", "libomp.so.5", defines=llvm(banner))

    report, library = asked("openmp", path)

    assert (library.presence, library.version) == (Presence.USABLE, "")
    assert report.facts["runtime"] == "llvm"
    assert report.facts["specification_date"] == 202011


def test_a_runtime_of_llvm_under_the_name_of_gnus_is_llvms(tmp_path: Path, fake_library: FakeLibrary) -> None:
    built = fake_library("openmp", "libomp.so", defines=llvm())
    shutil.copy(built, tmp_path / "libgomp.so.1")
    host = Host(python={"path": []}, environment={"LD_LIBRARY_PATH": str(tmp_path)})

    finding = openmp.find(host)

    (library,) = (library for library in finding.libraries if library.path.startswith(str(tmp_path)))
    assert library.facts == {"runtime": "llvm"}


@pytest.mark.parametrize(
    ("versions", "facts"),
    [
        (
            ["GOMP_1.0", "GOMP_4.5", "GOMP_5.0.1", "GOMP_5.0"],
            {"symbol_version": "GOMP_5.0.1", "gcc_interface": "11"},
        ),
        (["GOMP_4.0", "GOMP_9.10", "GOMP_9.2"], {"symbol_version": "GOMP_9.10"}),
        (["OTHER_1"], {}),
    ],
)
def test_the_highest_symbol_version_of_a_gnu_runtime_is_told(
    tmp_path: Path, versions: list[str], facts: dict[str, str]
) -> None:
    import subprocess

    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (cc) to make the fake library with")
    (tmp_path / "gomp.c").write_text("void GOMP_barrier(void) {}\n")
    script = "".join(f"{name} {{ }};\n" for name in versions[:-1])
    (tmp_path / "gomp.map").write_text(f"{script}{versions[-1]} {{ global: GOMP_barrier; }};\n")
    path = tmp_path / "libgomp.so.1"
    flags = ["-shared", "-fPIC", f"-Wl,--version-script={tmp_path}/gomp.map"]
    subprocess.run([compiler, *flags, "-o", path, tmp_path / "gomp.c"], check=True)
    host = Host(python={"path": []}, environment={"LD_LIBRARY_PATH": str(tmp_path)})

    finding = openmp.find(host)

    (library,) = (library for library in finding.libraries if library.path == str(path))
    assert library.facts == {"runtime": "gnu", **facts}


def wheel(site: Path, name: str, files: dict[str, Path]) -> None:
    """Lay out an installed distribution that brings these files, as a recorded host has it."""
    record = ""
    for relative, built in files.items():
        path = site / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(built, path)
        record += f"{relative},,\n"
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text(record)


def test_two_wheels_that_each_bring_a_runtime_are_a_conflict(
    tmp_path: Path, fake_library: FakeLibrary
) -> None:
    first = fake_library("openmp", "libgomp-aaaaaa11.so.1.0.0", defines=GNU)
    second = fake_library("openmp", "libgomp-bbbbbb22.so.1.0.0", defines=GNU)
    site = tmp_path / "root" / "site"
    wheel(site, "alpha", {f"alpha.libs/{first.name}": first})
    wheel(site, "beta", {f"beta.libs/{second.name}": second})
    (tmp_path / "host.json").write_text(json.dumps({"python": {"path": ["/site"]}}))

    (warning,) = openmp.find(Host(str(tmp_path))).warnings

    assert warning.code == "conflict"
    assert "alpha includes libgomp-aaaaaa11.so.1.0.0" in warning.message
    assert "beta includes libgomp-bbbbbb22.so.1.0.0" in warning.message
    assert "each copy has separate threads" in warning.message


def headers(soname: str, needed: Sequence[str] = (), **paths: list[str]) -> dict[str, Any]:
    """Return what `read_elf` would return of such a library. paths: its rpath and its runpath."""
    texts = {"soname": soname, "needed": needed, "rpath": [], "runpath": [], **paths}
    return {"machine": "x86_64", **texts}


def with_the_systems(folder: Path, *packages: str, brought: str, **more: list[str]) -> Host:
    """Return a machine with libgomp.so.1 in /usr/lib and a wheel that brings a copy.

    packages: wheels of one file that needs libgomp.so.1. brought: the soname of that copy.
    """
    site, system = folder / "root" / "site", folder / "root" / "usr" / "lib"
    system.mkdir(parents=True)
    (system / "libgomp.so.1").write_bytes(b"")
    empty = folder / "empty.so"
    empty.write_bytes(b"")
    symbols = {"GOMP_parallel": True, "GOMP_barrier": True}
    runtime = {"version_definitions": [], "defined_symbols": symbols}
    extracts: dict[str, dict[str, Any]] = {
        "/usr/lib/libgomp.so.1": {**runtime, "read_elf": headers("libgomp.so.1")},
        f"/site/scikit_learn.libs/{brought}": {**runtime, "read_elf": headers(brought)},
    }
    wheel(site, "scikit_learn", {f"scikit_learn.libs/{brought}": empty})
    for package in packages:
        wheel(site, package, {f"{package}/lib/lib_{package}.so": empty})
        elf = headers("", ["libgomp.so.1", "libc.so.6"], **more)
        extracts[f"/site/{package}/lib/lib_{package}.so"] = {"read_elf": elf}
    (folder / "extracts.json").write_text(json.dumps(extracts))
    told = {"python": {"path": ["/site"]}, "uname": {"machine": "x86_64", "system": "Linux"}}
    (folder / "host.json").write_text(json.dumps(told | {"platform": "linux"}))
    return Host(str(folder))


def test_a_wheel_that_takes_the_systems_runtime_meets_the_one_that_another_brings(
    tmp_path: Path,
) -> None:
    host = with_the_systems(tmp_path, "lightgbm", brought="libgomp-e985bcbb.so.1.0.0")

    finding = openmp.find(host)
    (warning,) = finding.warnings

    assert finding.facts["conflicting_copies"] == [
        "/site/scikit_learn.libs/libgomp-e985bcbb.so.1.0.0",
        "/usr/lib/libgomp.so.1",
    ]
    assert "includes libgomp-e985bcbb.so.1.0.0 and lightgbm uses /usr/lib/libgomp.so.1" in (warning.message)


def test_the_systems_runtime_that_no_wheel_takes_is_no_conflict(tmp_path: Path) -> None:
    host = with_the_systems(tmp_path, brought="libgomp-e985bcbb.so.1.0.0")

    assert openmp.find(host).warnings == ()


def test_a_wheel_that_takes_what_another_brings_by_the_same_soname_shares_it(
    tmp_path: Path,
) -> None:
    host = with_the_systems(tmp_path, "lightgbm", brought="libgomp.so.1")

    assert openmp.find(host).warnings == ()


@pytest.mark.parametrize("tag", ["rpath", "runpath"])
def test_a_wheel_that_points_to_a_copy_of_its_own_does_not_take_the_systems(tmp_path: Path, tag: str) -> None:
    host = with_the_systems(tmp_path, "numba", brought="libgomp-e985bcbb.so.1", **{tag: ["$ORIGIN/../own"]})
    own = tmp_path / "root" / "site" / "numba" / "own"
    own.mkdir()
    (own / "libgomp.so.1").write_bytes(b"")

    assert openmp.find(host).warnings == ()


def test_a_runtime_of_torch_that_its_library_does_not_need_is_no_conflict(
    tmp_path: Path, fake_library: FakeLibrary
) -> None:
    ours = fake_library("openmp", "libgomp.so.1", defines=GNU)
    theirs = fake_library("openmp", "libgomp-bbbbbb22.so.1.0.0", defines=GNU)
    carrier = fake_library("torch", "libtorch_cpu.so", source="int nothing;\n")
    site = tmp_path / "root" / "site"
    wheel(site, "torch", {"torch/lib/libgomp.so.1": ours, "torch/lib/libtorch_cpu.so": carrier})
    wheel(site, "beta", {f"beta.libs/{theirs.name}": theirs})
    (tmp_path / "host.json").write_text(json.dumps({"python": {"path": ["/site"]}}))

    assert openmp.find(Host(str(tmp_path))).warnings == ()


def test_runtimes_of_different_makers_are_named(tmp_path: Path, fake_library: FakeLibrary) -> None:
    first = fake_library("openmp", "libomp-aaaaaa11.so.5", defines=llvm())
    second = fake_library("openmp", "libiomp5-bbbbbb22.so", defines=llvm())
    site = tmp_path / "root" / "site"
    wheel(site, "alpha", {f"alpha.libs/{first.name}": first})
    wheel(site, "beta", {f"beta.libs/{second.name}": second})
    (tmp_path / "host.json").write_text(json.dumps({"python": {"path": ["/site"]}}))

    (warning,) = openmp.find(Host(str(tmp_path))).warnings

    assert "different makers (intel, llvm)" in warning.message
    assert "share a runtime" in warning.hint


@pytest.mark.parametrize(
    ("variable", "value", "codes"),
    [
        ("OMP_NUM_THREADS", "2", []),
        ("OMP_NUM_THREADS", "2,1", []),
        ("OMP_NUM_THREADS", "64", ["override-exceeds-hardware"]),
        ("OMP_NUM_THREADS", "0", ["override-invalid"]),
        ("OMP_NUM_THREADS", "9" * 4000, ["override-invalid"]),
        ("OMP_NUM_THREADS", "\u0664", ["override-invalid"]),
        ("OMP_PROC_BIND", "close,spread", []),
        ("OMP_PROC_BIND", "near", ["override-invalid"]),
        ("OMP_PLACES", "cores(4)", []),
        ("OMP_PLACES", "{0:4}:2", []),
        ("OMP_PLACES", "core", ["override-invalid"]),
        ("OMP_SCHEDULE", "nonmonotonic:dynamic,16", []),
        ("OMP_SCHEDULE", "dynamic,x", ["override-invalid"]),
        ("OMP_STACKSIZE", "64M", []),
        ("OMP_STACKSIZE", "64 potatoes", ["override-invalid"]),
        ("OMP_WAIT_POLICY", "PASSIVE", []),
        ("KMP_BLOCKTIME", "infinite", []),
        ("KMP_BLOCKTIME", "long", ["override-invalid"]),
        ("KMP_AFFINITY", "granularity=fine,compact,1,0", []),
    ],
)
def test_variables_of_openmp_are_facts_and_held_against_what_they_take(
    tmp_path: Path, fake_library: FakeLibrary, variable: str, value: str, codes: list[str]
) -> None:
    built = fake_library("openmp", "libgomp.so.1", defines=GNU)
    (tmp_path / "root" / "usr" / "lib").mkdir(parents=True)
    shutil.copy(built, tmp_path / "root" / "usr" / "lib")
    host = {"environment": {variable: value}, "affinity": [0, 1, 2, 3]}
    (tmp_path / "host.json").write_text(json.dumps(host))

    finding = openmp.find(Host(str(tmp_path)))

    assert finding.facts == {"environment": {variable: value}}
    assert [warning.code for warning in finding.warnings] == codes


@pytest.mark.parametrize(("mapped", "codes"), [(2, ["conflict"]), (1, [])])
def test_two_runtimes_that_a_process_has_mapped_are_a_conflict(
    tmp_path: Path, fake_library: FakeLibrary, mapped: int, codes: list[str]
) -> None:
    root = tmp_path / "root"
    (root / "usr" / "lib").mkdir(parents=True)
    (root / "proc" / "321").mkdir(parents=True)
    names = ("libgomp.so.1", "libiomp5.so")
    shutil.copy(fake_library("openmp", names[0], defines=GNU), root / "usr/lib")
    shutil.copy(fake_library("openmp", names[1], defines=llvm()), root / "usr/lib")
    maps = [f"7f00-7f01 r-xp 00000000 08:01 12 /usr/lib/{name}\n" for name in names]
    (root / "proc" / "321" / "maps").write_text("".join(maps[:mapped]))

    finding = openmp.find(Host(str(tmp_path), pid=321))

    assert [library.used for library in finding.libraries] == [True, mapped == 2]
    assert [warning.code for warning in finding.warnings] == codes
    assert all("process 321 has mapped" in warning.message for warning in finding.warnings)
