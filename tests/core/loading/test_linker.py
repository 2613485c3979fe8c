"""The rules of the dynamic loader, one a case, each compared with the loader of this machine.

The libraries are compiled for it; `dlopen` in a process of its own has the last word.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlbackends.base.errors import NotALibrary
from mlbackends.host.host import Host
from mlbackends.libraries.elf import ElfImage
from mlbackends.loading.dynamic_symbols import symbol
from mlbackends.loading.linker import ObjectFile, Process
from mlbackends.loading.packages import resolve
from mlbackends.model.loading import PackageLoading

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("gcc") is None, reason="needs Linux and gcc"
)
VERSION = ".".join(map(str, sys.version_info[:2]))
RPATH, RUNPATH = "-Wl,--disable-new-dtags,-rpath,", "-Wl,--enable-new-dtags,-rpath,"
VARIABLE = {"LD_LIBRARY_PATH": "{}/by_variable"}


class Case(NamedTuple):
    """Libraries, each with what it is linked with and its options, and how the last one ends.

    found: by library, the file and the step. fails: what the loader's words have.
    """

    libraries: dict[str, tuple[str, ...]]
    found: dict[str, tuple[str, str]]
    fails: str = ""
    variables: Mapping[str, str] = MappingProxyType({})


def leaf(*folders: str) -> dict[str, tuple[str, ...]]:
    """Return the same library in some folders."""
    return {f"{folder}/libleaf.so": () for folder in folders}


BOTH = leaf("a", "by_variable")
CASES = {
    "nothing finds it": Case(leaf("a") | {"top.so": ("a/libleaf.so",)}, {}, "libleaf.so: cannot open"),
    "RPATH before LD_LIBRARY_PATH": Case(
        BOTH | {"top.so": ("a/libleaf.so", f"{RPATH}$ORIGIN/a")}, {"libleaf.so": ("a", "RPATH")}, "", VARIABLE
    ),
    "LD_LIBRARY_PATH before RUNPATH": Case(
        BOTH | {"top.so": ("a/libleaf.so", f"{RUNPATH}$ORIGIN/a")},
        {"libleaf.so": ("by_variable", "LD_LIBRARY_PATH")},
        "",
        VARIABLE,
    ),
    "RPATH is inherited": Case(
        leaf("a")
        | {"b/libmid.so": ("a/libleaf.so",), "top.so": ("b/libmid.so", f"{RPATH}$ORIGIN/a:$ORIGIN/b")},
        {"libleaf.so": ("a", "RPATH")},
    ),
    "RUNPATH is not inherited": Case(
        leaf("a")
        | {"b/libmid.so": ("a/libleaf.so",), "top.so": ("b/libmid.so", f"{RUNPATH}$ORIGIN/a:$ORIGIN/b")},
        {},
        "libleaf.so: cannot open",
    ),
    "RUNPATH hides the RPATH above it": Case(
        leaf("a")
        | {
            "b/libmid.so": ("a/libleaf.so", f"{RUNPATH}/nowhere"),
            "top.so": ("b/libmid.so", f"{RPATH}$ORIGIN/a:$ORIGIN/b"),
        },
        {},
        "libleaf.so: cannot open",
    ),
    "the braces of ${ORIGIN}, and a folder above": Case(
        leaf("a") | {"c/d/top.so": ("a/libleaf.so", f"{RUNPATH}${{ORIGIN}}/../../a")},
        {"libleaf.so": ("a", "RUNPATH")},
    ),
    "one that is mapped is taken by its soname": Case(
        leaf("a", "b")
        | {
            "b/libmid.so": ("a/libleaf.so", f"{RUNPATH}$ORIGIN"),
            "top.so": ("a/libleaf.so", "b/libmid.so", f"{RUNPATH}$ORIGIN/a:$ORIGIN/b"),
        },
        {"libleaf.so": ("a", "RUNPATH")},
    ),
    "libraries that need each other": Case(
        leaf("a")
        | {
            "b/libmid.so": ("a/libleaf.so", f"{RPATH}$ORIGIN:$ORIGIN/../a"),
            "a/../a/libleaf.so": ("b/libmid.so", f"{RPATH}$ORIGIN:$ORIGIN/../b"),
            "top.so": ("a/libleaf.so", f"{RPATH}$ORIGIN/a"),
        },
        {"libmid.so": ("b", "RPATH")},
    ),
    "a symbol that nothing defines": Case(
        leaf("a") | {"top.so": ("a/libleaf.so", f"{RPATH}$ORIGIN/a", "-Dgone=missing_function", "-DUSE")},
        {},
        "undefined symbol: missing_function",
    ),
    "a weak symbol may stay undefined": Case(
        leaf("a") | {"top.so": ("a/libleaf.so", f"{RPATH}$ORIGIN/a", "-DWEAK", "-DUSE")},
        {"libleaf.so": ("a", "RPATH")},
    ),
    "a cut file ends the search": Case(
        BOTH | {"top.so": ("a/libleaf.so", f"{RPATH}$ORIGIN/cut:$ORIGIN/a"), "cut/libleaf.so": ("cut",)},
        {},
        "cut/libleaf.so: ",
    ),
    "one for another processor is passed over": Case(
        BOTH
        | {
            "top.so": ("a/libleaf.so", f"{RPATH}$ORIGIN/foreign:$ORIGIN/a"),
            "foreign/libleaf.so": ("foreign",),
        },
        {"libleaf.so": ("a", "RPATH")},
    ),
    "a folder named by a link": Case(
        leaf("a") | {"link/top.so": ("link",), "c/top.so": ("a/libleaf.so", f"{RUNPATH}$ORIGIN/../a")},
        {"libleaf.so": ("a", "RUNPATH")},
    ),
}
CODE = """
#ifdef WEAK
__attribute__((weak))
#endif
int gone(void);
#ifdef USE
int use(void) { return gone ? gone() : 0; }
#endif
int defined(void) { return 1; }
"""


def built(folder: Path, libraries: dict[str, tuple[str, ...]]) -> Path:
    """Compile the libraries of a case and return the path of the last one that is asked about."""
    (folder / "x.c").write_text(CODE)
    for name, how in libraries.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        if how == ("cut",):
            path.write_bytes((folder / "a/libleaf.so").read_bytes()[:40])
        elif how == ("foreign",):
            data = bytearray((folder / "a/libleaf.so").read_bytes())
            data[18:20] = b"\xb7\0" if data[18] != 0xB7 else b"\x3e\0"
            path.write_bytes(data)
        elif how == ("link",):
            path.parent.rmdir()
            path.parent.symlink_to("c")
        else:
            flags = [str(folder / item) if item.endswith(".so") else item for item in how]
            soname = [f"-Wl,-soname,{path.name}"] * (path.name != "top.so")
            command = [
                "gcc",
                "-shared",
                "-fPIC",
                "-Wl,--no-as-needed",
                *soname,
                "-o",
                str(path),
                str(folder / "x.c"),
                *flags,
            ]
            subprocess.run(command, check=True)
    return folder / next(name for name in libraries if name.endswith("top.so"))


@pytest.mark.parametrize("name", CASES)
def test_a_rule_of_the_loader(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    top = built(tmp_path, case.libraries)
    variables = {key: value.format(tmp_path) for key, value in case.variables.items()}
    answer = opened(top, variables)
    message = answer.faults[0].message if answer.faults else ""
    assert case.fails in message and bool(case.fails) == bool(message)
    needs = {need.name: need for file in answer.files for need in file.needs if need.step != "already loaded"}
    for library, (folder, step) in case.found.items():
        assert (needs[library].path, needs[library].step) == (f"{tmp_path}/{folder}/{library}", step)
    # What the loader says, in whose words ours are but for files that are damaged.
    program = "import ctypes, sys\ntry: ctypes.CDLL(sys.argv[1])\nexcept OSError as error: print(error)"
    environment = {"PATH": os.environ["PATH"], **variables}
    done = subprocess.run(
        [sys.executable, "-c", program, top], env=environment, capture_output=True, text=True, check=True
    )
    truth = done.stdout.strip()
    assert truth == message or (answer.faults[0].code == "not-a-library" and case.fails in truth)


def opened(path: Path, variables: dict[str, str]) -> PackageLoading:
    """Return what `backends resolve --tree FILE` does."""
    python = {"executable": sys.executable, "version": f"{VERSION}.0", "path": []}
    [answer] = resolve(Host(python=python, environment=variables), [str(path)], with_files=True).packages
    return answer


def test_a_version_that_a_library_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int f(void) { return 1; }")
    (tmp_path / "use.c").write_text("int f(void); int g(void) { return f(); }")
    for version in ("V_2", "V_1"):  # linked with the first, and then replaced
        (tmp_path / "map").write_text(f"{version} {{ global: f; }};")
        flags = ["-Wl,-soname,libx.so", f"-Wl,--version-script={tmp_path}/map", "-o", f"{tmp_path}/libx.so"]
        subprocess.run(["gcc", "-shared", "-fPIC", f"{tmp_path}/x.c", *flags], check=True)
        if version == "V_2":
            flags = [f"{tmp_path}/libx.so", f"{RPATH}$ORIGIN", "-o", f"{tmp_path}/top.so"]
            subprocess.run(["gcc", "-shared", "-fPIC", f"{tmp_path}/use.c", *flags], check=True)
    fault = opened(tmp_path / "top.so", {}).faults[0]
    assert (fault.code, fault.name) == ("missing-version", "V_2")
    assert fault.message == f"{tmp_path}/libx.so: version `V_2' not found (required by {tmp_path}/top.so)"


def test_what_fails_leaves_nothing_mapped(tmp_path: Path) -> None:
    top = built(tmp_path, leaf("a") | {"top.so": ("a/libleaf.so", f"{RPATH}$ORIGIN/a", "-DUSE")})
    process = Process(Host(environment={}), sys.executable)
    before = [*process.mapped]
    assert process.open(str(top)).faults
    assert process.mapped == before
    assert process.open("libleaf.so").faults  # its name is forgotten with it


def test_a_circle_of_libraries_may_be_longer_than_pythons_limit_of_recursion(tmp_path: Path) -> None:
    libraries = {"libnext.so": ("-nostdlib",), "libatop.so": ("libnext.so", f"{RPATH}$ORIGIN", "-nostdlib")}
    data, count = built(tmp_path, libraries).read_bytes(), sys.getrecursionlimit()
    for i in range(count):
        own, needed = b"lib%04d" % i, b"lib%04d" % ((i + 1) % count)
        (tmp_path / f"lib{i:04}.so").write_bytes(data.replace(b"libatop", own).replace(b"libnext", needed))
    assert not opened(tmp_path / "lib0000.so", {}).faults


@pytest.mark.parametrize(("glibc", "is_refused"), [("2.40", False), ("2.41", True)])
def test_glibc_2_41_and_newer_refuse_an_executable_stack(
    tmp_path: Path, glibc: str, is_refused: bool
) -> None:
    built(tmp_path, {"top.so": ("-nostdlib", "-Wl,-z,execstack")})
    (tmp_path / "host.json").write_text(f'{{"system": {{"libc": "glibc {glibc}"}}}}')
    opening = Process(Host(str(tmp_path))).open("/top.so")
    assert [fault.code for fault in opening.faults] == ["executable-stack"] * is_refused


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("samples")
    return [
        built(folder, {"top.so": ("-DUSE", f"-Wl,--hash-style={style}")}).read_bytes()
        for style in ("gnu", "sysv")
    ]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 1),
    st.lists(st.tuples(st.integers(0, 0x3400), st.integers(0, 255)), max_size=6),
    st.integers(0, 20000),
)
def test_a_damaged_file_is_read_or_refused(
    tmp_path: Path, samples: list[bytes], which: int, edits: list[tuple[int, int]], length: int
) -> None:
    data = bytearray(samples[which])
    for at, value in edits:
        data[at % len(data)] = value
    path = tmp_path / "damaged.so"
    path.write_bytes(data[:length] if length < len(data) // 4 else data)
    try:
        file = ObjectFile(str(path))
        file.symbols.defines(symbol("defined"))
        list(file.symbols.names())
        with ElfImage(str(path)) as image:
            file.symbols.first_used(image, file.symbols.lacking)
    except NotALibrary:
        pass
