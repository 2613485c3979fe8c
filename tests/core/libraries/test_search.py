"""Every copy is found, by every step, and the one that a process would get wins."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from mlbackends.host.host import Host
from mlbackends.libraries.library_names import stem_of
from mlbackends.libraries.search import absent, inside, libraries_named

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compile a library that defines one function, with a soname."""
    folder = tmp_path_factory.mktemp("built")

    def build(soname: str, symbol: str = "answer") -> Path:
        path = folder / f"{soname}-{symbol}"
        if not path.exists():
            source = folder / "source.c"
            source.write_text(f"int {symbol}(void) {{ return 42; }}")
            command = ["cc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-o", path, source]
            subprocess.run([str(part) for part in command], check=True)
        return path

    return build


class Machine:
    """A recorded machine that is built up in a folder."""

    def __init__(self, folder: Path, build: Build) -> None:
        self.folder, self._build = folder, build
        (folder / "root").mkdir()
        machine = subprocess.run(["uname", "-m"], capture_output=True, text=True, check=True).stdout
        self.told: dict[str, object] = {
            "uname": {"machine": machine.strip()},
            "environment": {},
            "python": {"prefix": "/env", "path": ["/env/lib/python3.11/site-packages"]},
        }

    def add(self, path: str, soname: str, symbol: str = "answer") -> None:
        target = self.folder / "root" / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self._build(soname, symbol), target)

    def write(self, path: str, text: str) -> None:
        target = self.folder / "root" / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode())

    def link(self, path: str, to: str) -> None:
        target = self.folder / "root" / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(to)

    def host(self, **environment: str) -> Host:
        self.told["environment"] = environment
        (self.folder / "host.json").write_text(json.dumps(self.told))
        return Host(str(self.folder))


@pytest.fixture
def machine(tmp_path: Path, built: Build) -> Machine:
    if os.name == "nt":
        pytest.skip("it compiles ELF libraries, and links to them")
    return Machine(tmp_path, built)


SITE = "/env/lib/python3.11/site-packages"


def test_the_order_of_the_steps_is_the_order_in_which_a_process_meets_the_copies(
    machine: Machine,
) -> None:
    machine.add("/usr/local/toolkit/lib64/libthing.so.1", "libthing.so.1")
    machine.add("/opt/home/lib/libthing.so.1", "libthing.so.1")
    machine.add("/usr/lib/libthing.so.1", "libthing.so.1")
    machine.add("/env/lib/libthing.so.1", "libthing.so.1")
    machine.add(f"{SITE}/nvidia/thing/lib/libthing.so.1", "libthing.so.1")
    machine.add("/ld/libthing.so.1", "libthing.so.1")
    machine.add("/pre/libthing.so.1", "libthing.so.1")

    found = libraries_named(
        machine.host(LD_LIBRARY_PATH="/ld", LD_PRELOAD="/pre/libthing.so.1", THING_HOME="/opt/home"),
        "thing",
        "libthing",
        homes=("THING_HOME",),
        folders=("/usr/local/toolkit*/lib64",),
    )

    assert [(library.found_by, library.wins) for library in found] == [
        ("LD_PRELOAD", True),
        ("LD_LIBRARY_PATH", False),
        ("site-packages", False),
        ("python-prefix", False),
        ("system-folder", False),
        ("THING_HOME", False),
        ("well-known-folder", False),
    ]
    assert found[1].wins_because == "/pre/libthing.so.1 is found first: LD_PRELOAD"


OWN = "libthing-1a2b3c4d.so"
LISTED = f"/ld/{OWN}"
BROUGHT = f"{SITE}/pkg.libs/{OWN}"


def headers(soname: str = "", needed: Sequence[str] = (), **paths: list[str]) -> dict[str, Any]:
    """Return what `read_elf` would return of such a library. paths: its rpath and its runpath."""
    texts = {"soname": soname, "needed": needed, "rpath": [], "runpath": [], **paths}
    return {"machine": "x86_64", **texts}


def wheel(machine: Machine, **files: dict[str, Any]) -> None:
    """Install a package of these extension modules, whose library lies in /ld too."""
    machine.told["uname"] = {"machine": "x86_64"}
    paths = [f"pkg.libs/{OWN}", *(f"pkg/sub/{name}.so" for name in files)]
    record = "".join(f"{path},sha256=x,1\n" for path in paths)
    machine.write(f"{SITE}/pkg-1.0.dist-info/RECORD", record)
    machine.write(f"{SITE}/pkg-1.0.dist-info/METADATA", "Name: pkg\nVersion: 1.0\n")
    written = {LISTED: headers(OWN), BROUGHT: headers(OWN)}
    written |= {f"{SITE}/pkg/sub/{name}.so": elf for name, elf in files.items()}
    for path in written:
        machine.write(path, "")
    extracts = {path: {"read_elf": elf} for path, elf in written.items()}
    (machine.folder / "extracts.json").write_text(json.dumps(extracts))


def won(machine: Machine, **environment: str) -> str:
    host = machine.host(**environment or {"LD_LIBRARY_PATH": "/ld"})
    (found,) = (library.path for library in libraries_named(host, "thing", "libthing") if library.wins)
    return found


def needing(**more: Any) -> dict[str, Any]:
    return headers(needed=[OWN], **more)


def test_what_a_wheel_finds_by_rpath_comes_before_the_search_path(machine: Machine) -> None:
    wheel(machine, one=needing(rpath=["/nowhere", "$ORIGIN/../../pkg.libs"]))

    listed, brought = libraries_named(machine.host(LD_LIBRARY_PATH="/ld"), "thing", "libthing")

    assert (listed.path, listed.wins) == (LISTED, False)
    assert (brought.path, brought.wins) == (BROUGHT, True)
    assert brought.wins_because == (
        "what needs it in pkg finds it by RPATH, which is searched before LD_LIBRARY_PATH"
    )
    assert listed.wins_because.startswith(f"{BROUGHT} is found first: pkg finds it by RPATH")


@pytest.mark.parametrize(
    "other",
    [
        needing(runpath=["$ORIGIN/../../pkg.libs"]),
        needing(rpath=["$ORIGIN/../../pkg.libs"], runpath=["/nowhere"]),
        needing(rpath=["$ORIGIN/../elsewhere"]),
        needing(),
    ],
    ids=["runpath", "both", "another folder", "neither"],
)
def test_one_file_without_an_rpath_to_it_takes_what_the_search_path_names(
    machine: Machine, other: dict[str, Any]
) -> None:
    wheel(machine, one=needing(rpath=["${ORIGIN}/../../pkg.libs"]), two=other)

    assert won(machine) == LISTED


def test_a_file_without_a_path_of_its_own_searches_the_rpath_of_what_loads_it(
    machine: Machine,
) -> None:
    inner = headers("libinner.so", [OWN])
    loading = headers(needed=["libinner.so"], rpath=["$ORIGIN/../../pkg.libs"])
    wheel(machine, libinner=inner, one=loading)
    assert won(machine) == BROUGHT

    wheel(machine, libinner=inner, one={**loading, "rpath": [], "runpath": loading["rpath"]})
    assert won(machine) == LISTED


def test_what_is_preloaded_comes_before_any_rpath(machine: Machine) -> None:
    wheel(machine, one=needing(rpath=["$ORIGIN/../../pkg.libs"]))

    assert won(machine, LD_PRELOAD=LISTED, LD_LIBRARY_PATH="/ld") == LISTED


def test_files_that_load_each_other_in_a_circle_have_no_rpath(machine: Machine) -> None:
    first = headers("libfirst.so", [OWN, "libsecond.so"])
    second = headers("libsecond.so", ["libfirst.so"])
    wheel(machine, libfirst=first, libsecond=second)

    assert won(machine) == LISTED


def test_copies_with_different_sonames_do_not_compete(machine: Machine) -> None:
    machine.add("/usr/lib/libthing.so.1", "libthing.so.1")
    machine.add("/usr/lib/libthing.so.2", "libthing.so.2")

    found = libraries_named(machine.host(), "thing", "libthing")

    assert [(library.soname, library.wins) for library in found] == [
        ("libthing.so.1", True),
        ("libthing.so.2", True),
    ]


def test_several_names_of_one_file_are_one_copy(machine: Machine) -> None:
    machine.add("/usr/lib/libthing.so.1.2.3", "libthing.so.1")
    machine.link("/usr/lib/libthing.so.1", "libthing.so.1.2.3")
    machine.link("/usr/lib/libthing.so", "libthing.so.1")
    machine.link("/usr/local/lib/libthing.so", "/usr/lib/libthing.so.1.2.3")

    assert len(libraries_named(machine.host(), "thing", "libthing")) == 1


def test_a_name_that_only_begins_alike_is_another_library(machine: Machine) -> None:
    machine.add("/usr/lib/libthing_ops.so.1", "libthing_ops.so.1")
    machine.add("/usr/lib/libthings.so.1", "libthings.so.1")

    assert libraries_named(machine.host(), "thing", "libthing") == []


def test_what_is_no_library_says_what_it_is(machine: Machine) -> None:
    machine.write("/usr/lib/libthing.so", "INPUT(libthing.so.1)\n")
    machine.write("/usr/lib/libthing.so.3", "")
    machine.link("/usr/lib/libthing.so.2", "libthing.so.2.0")
    machine.add("/usr/local/lib/stubs/libthing.so", "libthing.so.1")

    found = libraries_named(machine.host(LD_LIBRARY_PATH="/usr/local/lib/stubs"), "thing", "libthing")

    assert {library.path: library.reasons[0].code for library in found} == {
        "/usr/lib/libthing.so": "not-a-library",
        "/usr/lib/libthing.so.2": "dangling-link",
        "/usr/lib/libthing.so.3": "not-a-library",
        "/usr/local/lib/stubs/libthing.so": "stub-library",
    }
    assert not any(library.wins for library in found)


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("libthing.so.1.0", "/usr/lib/libthing.so.1 is a link to libthing.so.1.0, which does not exist"),
        ("/gone/thing.so", "/usr/lib/libthing.so.1 is a link to /gone/thing.so, which does not exist"),
        ("libthing.so.1", "/usr/lib/libthing.so.1 is a link that leads back to itself"),
    ],
)  # fmt: skip
def test_a_dangling_link_names_its_target(machine: Machine, to: str, said: str) -> None:
    machine.write("/usr/lib/README", "")
    machine.link("/usr/lib/libthing.so.1", to)

    (found,) = libraries_named(machine.host(), "thing", "libthing")

    assert [(reason.code, reason.message) for reason in found.reasons] == [("dangling-link", said)]


def test_a_file_that_was_named_and_is_gone_is_no_link(machine: Machine) -> None:
    host = machine.host(LD_PRELOAD="/gone/libthing.so.1")

    (found,) = libraries_named(host, "thing", "libthing")

    assert found.reasons[0].code == "dangling-link"
    assert found.reasons[0].message == "/gone/libthing.so.1 is named by LD_PRELOAD and does not exist"


def test_a_file_for_another_processor_is_told_and_does_not_win(machine: Machine) -> None:
    machine.add("/ld/libthing.so.1", "libthing.so.1")
    machine.told["uname"] = {"machine": "vax"}

    (found,) = libraries_named(machine.host(LD_LIBRARY_PATH="/ld"), "thing", "libthing")

    assert found.reasons[0].code == "wrong-architecture"
    assert found.reasons[0].message.endswith("; this machine is vax")
    assert not found.wins


def test_the_wheel_that_brought_a_file_owns_it(machine: Machine) -> None:
    path = "nvidia/thing/lib/libthing.so.1"
    machine.add(f"{SITE}/{path}", "libthing.so.1")
    machine.write(f"{SITE}/nvidia_thing_cu13-1.2.3.dist-info/RECORD", f"{path},sha256=x,10\n")
    machine.write(f"{SITE}/nvidia_other-1.0.dist-info/RECORD", f"nvidia/other,,\n{path}.bak,,\n")

    (found,) = libraries_named(machine.host(), "thing", "libthing")

    assert found.owner == "nvidia-thing-cu13 1.2.3"


def test_conda_owns_what_its_records_list(machine: Machine) -> None:
    machine.add("/conda/lib/libthing.so.1", "libthing.so.1")
    machine.write("/conda/conda-meta/libthing-4.5-h0.json", json.dumps({"files": ["lib/libthing.so.1"]}))

    (found,) = libraries_named(machine.host(CONDA_PREFIX="/conda"), "thing", "libthing")

    assert (found.found_by, found.owner) == ("conda", "libthing 4.5")


def test_dpkg_owns_what_its_lists_name(machine: Machine) -> None:
    machine.add("/usr/lib/libthing.so.1", "libthing.so.1")
    machine.write("/var/lib/dpkg/info/libthing1:amd64.list", "/.\n/usr/lib/libthing.so.1\n")
    machine.write(
        "/var/lib/dpkg/status",
        "Package: libthing1\nArchitecture: i386\nVersion: 0\n\n"
        "Package: libthing1\nArchitecture: amd64\nVersion: 7-1\n",
    )

    (found,) = libraries_named(machine.host(), "thing", "libthing")

    assert found.owner == "libthing1 7-1"


def test_a_library_inside_another_is_found_by_its_symbol(machine: Machine) -> None:
    machine.add(f"{SITE}/torch/lib/libtorch_cpu.so", "libtorch_cpu.so", "MKL_Get_Version_String")

    host = machine.host()
    assert inside(host, "mkl", "libtorch_cpu", ("dnnl_version",)) == []
    (found,) = inside(host, "mkl", "libtorch_cpu", ("MKL_Get_Version_String", "mkl_other"))
    assert (found.name, found.wins) == ("mkl", False)
    assert found.found_by.startswith("inside ")


def test_relative_and_empty_entries_of_the_library_path_are_left_out(machine: Machine) -> None:
    machine.add("/ld/libthing.so.1", "libthing.so.1")

    found = libraries_named(machine.host(LD_LIBRARY_PATH=":.:relative:/ld/:"), "thing", "libthing")

    assert [library.path for library in found] == ["/ld/libthing.so.1"]


@pytest.mark.parametrize(
    ("value", "is_named"),
    [
        ("/ld", True),
        ("/gone:/ld", True),
        ("/gone;/ld", True),
        ("", False),
        (":", False),
        ("/gone", False),
        (".:ld:", False),
    ],
)
def test_an_absence_names_the_library_path_where_a_folder_of_it_was_searched(
    machine: Machine, value: str, is_named: bool
) -> None:
    machine.write("/ld/README", "")

    reason = absent(machine.host(LD_LIBRARY_PATH=value), "libthing")

    assert ("LD_LIBRARY_PATH" in reason.message) is is_named


def test_semicolons_part_the_library_path_as_well(machine: Machine) -> None:
    machine.add("/ld/libthing.so.1", "libthing.so.1")

    (found,) = libraries_named(machine.host(LD_LIBRARY_PATH="/gone;/ld"), "thing", "libthing")

    assert (found.path, found.found_by) == ("/ld/libthing.so.1", "LD_LIBRARY_PATH")


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("libcudnn.so", "libcudnn"),
        ("libcudnn.so.9", "libcudnn"),
        ("libcudnn.so.9.28.0", "libcudnn"),
        ("libcudnn_ops.so.9", "libcudnn_ops"),
        ("libgomp-24e2ab19.so.1.0.0", "libgomp"),
        ("libscipy_openblas64_-ff651d7f.so", "libscipy_openblas64_"),
        ("libomp.dylib", "libomp"),
        ("libomp.5.dylib", "libomp"),
        ("cudnn64_9.dll", "cudnn64_9"),
        ("libc++.so.1", "libc++"),
        ("libz.so.1.2.13.debug", ""),
        ("libthing.a", ""),
        ("README", ""),
        ("", ""),
    ],
)
def test_a_stem_is_a_name_without_hash_and_version(name: str, stem: str) -> None:
    assert stem_of(name) == stem
