"""`backends resolve` in an environment of stub packages, each of them broken in another way."""

from __future__ import annotations

import base64
import hashlib
import importlib.machinery
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import jsonschema
import pytest
from running import backends

from mlbackends.host.host import Host
from mlbackends.libraries.elf import ElfImage
from mlbackends.loading.linker import Process
from mlbackends_cli.loading.targets import target_machine
from mlbackends_cli.report.commands.schema import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)
SYMBOL = "_ZN3foo3barEi"


def compiled(path: Path, code: str, *linked: Path | str) -> None:
    """Compile a library whose soname is its file's name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = ["-shared", "-fPIC", f"-Wl,-soname,{path.name}", "-Wl,--no-as-needed"]
    command = ["cc", *options, "-o", str(path), "-xc", "-", "-xnone", *map(str, linked)]
    subprocess.run(command, input=code.encode(), check=True)


def installed(site: Path, name: str, *files: str, needs: str = "", init: str = "from . import _C\n") -> None:
    """Install a package of an extension module _C and other files."""
    (site / name / "__init__.py").write_text(init)
    info = site / f"{name}-1.0.dist-info"
    info.mkdir()
    requires = f"Requires-Dist: {needs}\n" if needs else ""
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{requires}")
    listed = (f"{name}/__init__.py", f"{name}/_C.so", *files)
    (info / "RECORD").write_text("".join(f"{file},,\n" for file in listed))


def empty_environment(folder: Path) -> Path:
    """Make an environment without packages; return where they go."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    (site,) = folder.glob("env/lib/python*/site-packages")
    return site


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment of packages that load and packages that do not."""
    folder = tmp_path_factory.mktemp("resolve")
    site = empty_environment(folder)
    starts = "void *PyInit__C(void) { return 0; }\n"
    absent, lost = folder / "libabsent.so.3", site / "lost/lib/liblost.so.1"
    for library in (absent, lost):
        compiled(library, "")
    compiled(site / "good/_C.so", starts)
    compiled(site / "lacking/_C.so", starts, absent)
    compiled(site / "follower/_C.so", starts)
    compiled(site / "mangled/_C.so", f"void {SYMBOL}(int);\nvoid f(void) {{ {SYMBOL}(1); }}\n{starts}")
    compiled(site / "lost/_C.so", starts, lost)
    absent.unlink()
    lost.unlink()
    for name in ("good", "lacking", "mangled"):
        installed(site, name)
    installed(site, "follower", needs="lacking", init="import lacking\nfrom . import _C\n")
    installed(site, "lost", "lost/lib/liblost.so.1")
    return folder


def resolved(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return backends("resolve", "--python", str(folder / "env/bin/python"), *arguments)


def test_a_package_that_loads_is_one_line_and_exit_code_0(folder: Path) -> None:
    done = resolved(folder, "good")

    assert (done.returncode, done.stdout) == (0, "✓ good 1.0 loads\n")


def test_the_page_has_the_failing_path_the_cause_and_the_command_of_each_fault(folder: Path) -> None:
    done = resolved(folder)
    text = " ".join(done.stdout.split())

    assert done.returncode == 1
    assert (
        "✗ lacking 1.0 does not load libabsent.so.3: cannot open shared object file: No such file or"
        " directory path lacking/_C.so → libabsent.so.3 why No installed package has libabsent.so.3, which"
        " lacking needs."
    ) in text
    assert "✗ follower 1.0 does not load: lacking does not\n" in done.stdout
    assert "why lost 1.0 installed it as lost/lib/liblost.so.1; it is gone." in text
    python = folder / "env/bin/python"
    assert f"type  {python} -m pip install --force-reinstall --no-deps lost==1.0\n" in done.stdout
    assert "1 package loads; 4 do not load\n" in done.stdout
    assert done.stdout.count(str(folder / "env/lib")) == 1
    assert "good" not in text
    assert "✓ good 1.0 loads\n" in resolved(folder, "--all").stdout


def test_an_undefined_symbol_has_the_name_that_the_loader_prints_and_that_of_the_source(folder: Path) -> None:
    text = " ".join(resolved(folder, "mangled").stdout.split())

    assert f"mangled/_C.so: undefined symbol: {SYMBOL}" in text
    assert ("C++ foo::bar(int)" in text) is bool(shutil.which("c++filt", path="/usr/bin:/bin"))


def test_the_tree_has_each_file_once_with_the_step_that_finds_it(folder: Path) -> None:
    lines = resolved(folder, "--tree", "good").stdout.splitlines()

    assert lines[1].split() == ["good/_C.so"]
    libc = [line for line in lines if "libc.so" in line]
    assert len(libc) == 1
    assert libc[0].startswith("    /")
    assert libc[0].endswith("already loaded")


def test_why_names_who_needs_a_library_or_a_symbol_and_what_has_it(folder: Path) -> None:
    library = resolved(folder, "--why", "libabsent.so.3", "lacking")
    symbol = resolved(folder, "--why", SYMBOL, "mangled")
    defined = json.loads(resolved(folder, "--why", "PyInit__C", "good", "--format", "json").stdout)
    unknown = resolved(folder, "--why", "libabsen.so.3", "lacking")
    python = resolved(folder, "--why", "PyFloat_FromDouble", "good")

    assert library.returncode == symbol.returncode == 1
    assert "lacking/_C.so: not found" in library.stdout
    assert "why   No installed package has libabsent.so.3" in library.stdout
    assert "Who needs _ZN3foo3barEi\n  mangled/_C.so" in symbol.stdout
    assert [*defined["lookups"][0]["definers"].values()] == ["good 1.0"]
    assert (unknown.returncode, "libabsent.so.3" in unknown.stderr) == (2, True)
    assert python.returncode == 0
    assert re.search(r"What defines it\n  /\S*python[\w.]*\n", python.stdout)


def test_formats_for_ci_have_each_fault_and_each_package_that_loads(folder: Path) -> None:
    junit = resolved(folder, "--format", "junit").stdout
    sarif = json.loads(resolved(folder, "--format", "sarif").stdout)

    assert 'failures="4"' in junit
    found = {
        result["ruleId"] for result in sarif["runs"][0]["results"] if result.get("kind", "fail") == "fail"
    }
    assert {"missing-library", "missing-symbol"} <= found
    record = json.loads(resolved(folder, "--format", "json", "follower").stdout)
    assert record["packages"][0]["faults"][0]["package"] == "lacking"
    jsonschema.validate(record, SCHEMAS["resolution"]())


@pytest.mark.parametrize(
    ("module", "needs", "typed"),
    [
        ("absl", "absl-py>=1.0,<3", "'absl-py<3,>=1.0'"),
        ("torch", "torch==2.9.0", "torch==2.9.0"),
        ("cv2", "other", "opencv-python"),
        ("yaml", "", "pyyaml"),
        ("unheard_of", "other", ""),
        ("torch", "torch==2.9.0,==2.9.1", ""),
    ],
)
def test_a_missing_module_is_installed_as_the_package_that_requires_it_asks(
    tmp_path: Path, module: str, needs: str, typed: str
) -> None:
    site = empty_environment(tmp_path)
    compiled(site / "asking/_C.so", "void *PyInit__C(void) { return 0; }\n")
    installed(site, "asking", needs=needs, init=f"import {module}\nfrom . import _C\n")
    page = resolved(tmp_path, "asking").stdout
    assert f"No module named '{module}'" in page
    assert page.endswith(f"pip install {typed}\n") if typed else "type" not in page
    assert ("no version fits all: asking needs torch" in page) is ("==2.9.1" in needs)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """Return the first fault of each package of an environment, all changed after installing."""
    folder = tmp_path_factory.mktemp("damaged")
    site = empty_environment(folder)
    for name in ("replaced", "foreign", "mute", "topmost", "textual", "relinked", "swapped"):
        library, module = site / f"{name}.libs/lib{name}.so.1", site / name / "_C.abi3.so"
        code = "void f(void);\nvoid *PyInit__C(void) { f(); return 0; }\n"
        compiled(library, "void f(void) {}\n")
        compiled(module, code, library, f"-Wl,-rpath,{library.parent}")
        installed(site, name, init=f"from . import _C, inner\nimport _{name}\n")
        lines = [f"_{name}.abi3.so,,", f"{name}/__init__.py,,", f"{name}/inner.py,,"]
        for path in (library, module):
            digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode()
            lines.append(f"{path.relative_to(site)},sha256={digest.rstrip('=')},")
        (site / f"{name}-1.0.dist-info/RECORD").write_text("\n".join(lines) + "\n")
        (site / name / "inner.py").touch()
        if name != "topmost":
            shutil.copy(site / "replaced/_C.abi3.so", site / f"_{name}.abi3.so")
    compiled(site / "replaced.libs/libreplaced.so.1", "void other(void) {}\n")
    compiled(site / "mute/_C.abi3.so", "void other(void) {}\n")
    compiled(site / "swapped/_C.abi3.so", code, site / "replaced.libs/libreplaced.so.1")
    foreign = site / "foreign.libs/libforeign.so.1"
    foreign.write_bytes(foreign.read_bytes().replace(b"\x03\x00\x3e\x00", b"\x03\x00\xb7\x00", 1))
    (site / "textual/inner.py").unlink()
    absent = folder / "libabsent.so.3"
    compiled(absent, "")
    compiled(site / "relinked/_C.abi3.so", code, absent)
    absent.unlink()
    packages = json.loads(resolved(folder, "--format", "json").stdout)["packages"]
    return {package["name"]: package["faults"][0] for package in packages}


@pytest.mark.parametrize(
    ("name", "code", "cause"),
    [
        (
            "replaced",
            "missing-symbol",
            "replaced.libs/libreplaced.so.1 is not the file that replaced 1.0 installed.",
        ),
        ("foreign", "missing-library", "foreign.libs/libforeign.so.1, for aarch64; this process is x86_64."),
        ("mute", "missing-symbol", "mute/_C.abi3.so is not the file that mute 1.0 installed."),
        ("topmost", "missing-file", "topmost 1.0 installed it; it is gone."),
        ("relinked", "missing-library", "relinked/_C.abi3.so is not the file that relinked 1.0 installed."),
        ("swapped", "missing-library", "swapped/_C.abi3.so is not the file that swapped 1.0 installed."),
        ("textual", "missing-file", "textual 1.0 installed it; it is gone."),
    ],
)
def test_a_package_whose_files_were_changed_is_installed_again(
    damaged: dict[str, dict[str, str]], name: str, code: str, cause: str
) -> None:
    fault = damaged[name]
    assert (fault["code"], fault["cause"].endswith(cause)) == (code, True), fault
    assert fault["command"].endswith(f"-m pip install --force-reinstall --no-deps {name}==1.0")


def test_what_zeros_at_the_end_of_a_file_do_cannot_be_determined(tmp_path: Path) -> None:
    site = empty_environment(tmp_path)
    file = site / "cut/_C.so"
    compiled(file, "char numbers[9000] = {1};\nvoid *PyInit__C(void) { return numbers; }\n")
    installed(site, "cut")
    with ElfImage(str(file)) as image:
        end = max(offset + size for kind, offset, _, size in image.segments if kind == 1)
    record = site / "cut-1.0.dist-info/RECORD"
    record.write_text(f"cut/__init__.py,,\ncut/_C.so,,{file.stat().st_size}\n")
    os.truncate(file, end - 3)
    done = resolved(tmp_path, "cut")

    lines = done.stdout.splitlines()
    assert (done.returncode, lines[0]) == (3, "? cut 1.0 cannot be determined")
    assert "cut/_C.so: the last 3 bytes are missing; the loader has zeros for them" in lines[1].strip()
    assert "is not the file that cut 1.0 installed" in done.stdout
    assert "pip install --force-reinstall --no-deps cut==1.0" in done.stdout


def test_compiled_code_that_uses_numpy_fails_without_it(tmp_path: Path) -> None:
    site = empty_environment(tmp_path)
    code = 'void *PyCapsule_GetPointer(void); char names[] = "numpy._core._multiarray_umath";\n'
    compiled(site / "using/_C.so", code + "void *PyInit__C(void) { return PyCapsule_GetPointer(); }\n")
    installed(site, "using", needs="numpy>=1.23")
    page = resolved(tmp_path, "using").stdout

    assert "using 1.0 does not load\n  No module named 'numpy'\n" in page
    assert page.splitlines()[2].endswith("pip install 'numpy>=1.23'")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("numpy.core._multiarray_umath", "does not load"),
        ("numpy.core._multiarray_umath\\0numpy._core._multiarray_umath", "loads"),
        ("numpy.core._multiarray_umath\\0pybind11", "loads, then falls back"),
    ],
)
def test_numpy_2_refuses_what_is_compiled_for_numpy_1(tmp_path: Path, text: str, verdict: str) -> None:
    site = empty_environment(tmp_path)
    code = f'void *PyCapsule_GetPointer(void); char names[] = "{text}";\n'
    code += "void *PyInit__C(void) { return PyCapsule_GetPointer(); }\n"
    compiled(site / "using/_C.so", code)
    installed(site, "using", needs="numpy")
    (site / "numpy").mkdir()
    (site / "numpy/__init__.py").touch()
    info = site / "numpy.dist-info"
    info.mkdir()
    (info / "RECORD").write_text("numpy/__init__.py,,\n")
    for version in ("1.26.4", "2.3.5"):
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: numpy\nVersion: {version}\n")
        page = resolved(tmp_path, "using").stdout
        assert f"using 1.0 {verdict if version[0] == '2' else 'loads'}\n" in page
    assert (verdict == "loads") or page.endswith("-m pip install 'numpy<2'\n")


def test_another_package_that_a_condition_leaves_out_costs_a_part(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "env", tmp_path / "env", symlinks=True)
    (site,) = tmp_path.glob("env/lib/python*/site-packages")
    init = "try:\n    import lacking\n    has = True\nexcept ImportError:\n    has = False\n"
    shutil.copytree(site / "good", site / "choosing")
    installed(site, "choosing", init=f"{init}from . import _C\nif has:\n    import lacking\n")
    assert "choosing 1.0 does not load" not in resolved(tmp_path, "choosing").stdout


@pytest.mark.parametrize("file", ["lib/libextra.so.1", "_unused.so", "_C.so"])
def test_a_damaged_file_that_importing_the_package_does_without_costs_a_part(
    tmp_path: Path, file: str
) -> None:
    site = empty_environment(tmp_path)
    path = site / "some" / file
    compiled(path, "void f(void) {}\n")
    compiled(site / "some/_C.so", "void *PyInit__C(void) { return 0; }\n")
    choosing = "from ._try import is_there\nif is_there: from ._C import f\nelse: from ._py import f\n"
    installed(site, "some", init=choosing)
    trying = "is_there = True\ntry:\n    from . import _C\nexcept ImportError:\n    is_there = False\n"
    (site / "some/_try.py").write_text(trying)
    (site / "some/_py.py").touch()
    record = site / "some-1.0.dist-info/RECORD"
    record.write_text(f"some/__init__.py,,\nsome/{file},,{path.stat().st_size}\n")
    assert "falls back" not in resolved(tmp_path, "some").stdout
    path.write_text("version https://git-lfs.github.com/spec/v1\n")
    page = resolved(tmp_path, "some").stdout
    assert "some 1.0 loads, then falls back" in page
    assert "--force-reinstall --no-deps some==1.0" in page


def test_of_two_packages_with_one_file_that_is_installed_again_whose_file_was_replaced(
    tmp_path: Path,
) -> None:
    site, absent = empty_environment(tmp_path), tmp_path / "libabsent.so.3"
    compiled(absent, "")
    compiled(site / "main/_C.so", "", absent)
    compiled(site / "part/_C.so", "void *PyInit__C(void) { return 0; }\n", absent)
    absent.unlink()
    installed(site, "part")
    (site / "main/__init__.py").touch()
    (site / "main-1.0.dist-info").mkdir()
    record = "main/__init__.py,,\npart/__init__.py,,\npart/_C.so,sha256=other,\n"
    (site / "main-1.0.dist-info/RECORD").write_text(record)

    for module, verdict in (("main", "loads"), ("part", "does not load")):
        package = json.loads(resolved(tmp_path, module, "--format", "json").stdout)["packages"][0]
        assert package["verdict"] == verdict
    (fault,) = package["faults"]
    assert fault["cause"].endswith(
        "part/_C.so is not the file that main 1.0 installed; part 1.0 has one of that name."
    )
    assert fault["command"].endswith("--no-deps main==1.0")


def test_what_a_package_opens_by_a_pattern_and_has_lost_is_installed_again(tmp_path: Path) -> None:
    site = empty_environment(tmp_path)
    for module in ("cv2", "numpy"):
        (site / module).mkdir()
        (site / module / "__init__.py").touch()
    (site / "opencv_python-4.9.dist-info").mkdir()
    (site / "opencv_python-4.9.dist-info/RECORD").write_text("cv2/__init__.py,,\ncv2/cv2.abi3.so,,\n")
    page = resolved(tmp_path, "cv2").stdout
    assert "recursion is detected" in page
    assert page.endswith("pip install --force-reinstall --no-deps opencv-python==4.9\n")


def test_a_package_without_a_list_of_its_files_is_judged_by_what_has_its_name(tmp_path: Path) -> None:
    site = empty_environment(tmp_path)
    compiled(site / "bare/_C.so", "void *PyInit__C(void) { return 0; }")
    installed(site, "bare")
    (site / "bare-1.0.dist-info/RECORD").unlink()
    assert resolved(tmp_path, "bare").returncode == 0
    (site / "bare/_C.so").write_bytes(b"no library")
    assert resolved(tmp_path, "bare").returncode == 1
    (site / "bare").rename(site / "other")
    done = resolved(tmp_path, "bare")
    assert (done.returncode, "bare-1.0.dist-info/RECORD: No such file" in done.stdout) == (3, True)


@pytest.mark.parametrize(("closed", "mode"), [("shut", 0), ("shut.libs", 0), ("shut.libs", 0o644)])
def test_a_folder_that_may_not_be_read_is_opened_and_not_called_gone(
    tmp_path: Path, unprivileged: Callable[[], AbstractContextManager[None]], closed: str, mode: int
) -> None:
    site = empty_environment(tmp_path)
    library = site / "shut.libs/libshut.so.1"
    compiled(library, "")
    starts = "void *PyInit__C(void) { return 0; }\n"
    compiled(site / "shut/_C.so", starts, library, f"-Wl,-rpath,{library.parent}")
    installed(site, "shut", "shut.libs/libshut.so.1")
    (site / closed).chmod(mode)
    with unprivileged():
        done = resolved(tmp_path, "shut", "--format", "json")
    (site / closed).chmod(0o700)
    (fault,) = json.loads(done.stdout)["packages"][0]["faults"]
    assert (done.returncode, fault["code"]) == (3, "not-read")
    assert f"{site / closed} may not be read; it belongs to " in fault["cause"]
    assert fault["command"] == f"chmod a+rX {site / closed}"


@pytest.mark.parametrize(("is_compiled", "verdict"), [(False, "loads"), (True, "does not load")])
def test_beside_the_module_with_the_packages_name_compiled_ones_count(
    tmp_path: Path, is_compiled: bool, verdict: str
) -> None:
    site = empty_environment(tmp_path)
    compiled(site / "named/_C.so", "void *PyInit__C(void) { return 0; }\n")
    beside = "_beside.so" if is_compiled else "beside/__init__.py"
    installed(site, "named", beside, needs="absent")
    if is_compiled:
        compiled(site / beside, "void lacking(void);\nvoid *PyInit__beside(void) { lacking(); return 0; }\n")
    else:
        (site / beside).parent.mkdir()
        (site / beside).write_text("import absent\n")
    assert (
        json.loads(resolved(tmp_path, "named", "--format", "json").stdout)["packages"][0]["verdict"]
        == verdict
    )


def test_a_running_process_needs_no_search_for_what_it_has_mapped(folder: Path) -> None:
    library = folder / "mapped/libabsent.so.3"
    compiled(library, "")
    code = f"import ctypes, sys; ctypes.CDLL({str(library)!r}); print(1, flush=True); sys.stdin.read()"
    command = [str(folder / "env/bin/python"), "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        done = backends("resolve", "--pid", str(process.pid), "lacking")
        assert process.stdin is not None
        process.stdin.close()

    assert (done.returncode, done.stdout) == (0, "✓ lacking 1.0 loads\n")


def test_a_wrong_question_is_one_line_and_exit_code_2(folder: Path) -> None:
    (folder / "empty").mkdir(exist_ok=True)
    (folder / "text").write_text("hello\n")
    for arguments, words in (
        (["goood"], "there is no package named 'goood'\nhint: did you mean 'good'?\n"),
        ([str(folder / "empty")], "has no shared object in it\n"),
        ([str(folder / "none.so")], "does not exist\n"),
        (["/"], "/ is a whole file system\n"),
        (["good", "--for", "glibc-x"], "--for glibc-x has no version\nhint: write it as glibc-2.31\n"),
        (["--root", str(folder), "--pid", "1"], "--root cannot be combined with --pid\n"),
        (["--matrix", "--tree"], "--matrix cannot be combined with --tree\n"),
        (["--matrix", "--why", "libc.so.6"], "--matrix cannot be combined with --why\n"),
        (["--tree", "--why", "libc.so.6"], "--why cannot be combined with --tree\n"),
        (["--lock", "a", "--if-installed", "b"], "--if-installed cannot be combined with --lock\n"),
        (["--tree", "--format", "junit"], "--why and --tree cannot be written as junit\n"),
        (["--index", str(folder)], "--index is for --if-installed alone\n"),
        (["--pid", str(2**22)], f"there is no process {2**22}\n"),
        (["--python", ""], "--python has an empty value\n"),
        (["--why", ""], "--why has an empty value\n"),
    ):
        done = resolved(folder, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
    text = resolved(folder, str(folder / "text"))
    assert text.returncode == 1
    assert "the file is a text file, not an ELF library" in " ".join(text.stdout.split())


def test_a_process_that_is_not_a_python_has_no_packages_unless_an_interpreter_is_named(folder: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        alone = backends("resolve", "--pid", str(process.pid))
        named = resolved(folder, "--pid", str(process.pid), "good")
        process.kill()
    assert (alone.returncode, alone.stdout, named.returncode) == (3, "", 0)
    assert "sleep is not a Python interpreter: " in alone.stderr


def test_a_module_of_a_package_is_judged_by_its_own_import(tmp_path: Path) -> None:
    site = empty_environment(tmp_path)
    starts = "void *PyInit__C(void) { return 0; }\n"
    compiled(site / "whole/_C.so", starts)
    compiled(site / "whole/part/_C.so", f"void lacking(void);\nvoid f(void) {{ lacking(); }}\n{starts}")
    files = ("whole/part/__init__.py", "whole/part/_C.so", "whole/fine.py", "whole/asking.py")
    installed(site, "whole", *files)
    (site / files[0]).write_text("from . import _C\n")
    (site / files[2]).write_text("")
    (site / files[3]).write_text("import absent\n")
    modules = {"whole": "loads, then falls back", "whole.fine": "loads"}
    modules |= dict.fromkeys(("whole.part", "whole.asking"), "does not load")
    answer = json.loads(resolved(tmp_path, *modules, "--format", "json").stdout)
    assert {package["name"]: package["verdict"] for package in answer["packages"]} == modules
    assert "there is no package named 'whole.none'" in resolved(tmp_path, "whole.none").stderr


def test_a_program_is_judged_as_it_starts(folder: Path) -> None:
    library, program = folder / "program/libof-program.so.1", folder / "program/run"
    compiled(library, "")
    command = ["cc", "-o", str(program), "-xc", "-", "-xnone", "-Wl,--no-as-needed", str(library)]
    subprocess.run(command, input=b"int main(void) { return 0; }", check=True)
    lacking = resolved(folder, str(program))

    assert lacking.returncode == 1
    assert "libof-program.so.1: cannot open shared object file" in lacking.stdout
    assert resolved(folder, sys.executable).returncode == 0


def test_a_recording_has_no_files_to_follow(tmp_path: Path) -> None:
    for described, words in (
        ('{"python": {"path": ["/usr/lib"]}}', "is a recording, which does not have the files of packages\n"),
        ('{"platform": "darwin"}', "is a recording, which does not have the files of packages\n"),
        ("{}", "this root has no Python in /usr/local/bin, /usr/bin, /opt/conda/bin\n"),
    ):
        (tmp_path / "host.json").write_text(described)
        done = backends("resolve", "--root", str(tmp_path))
        assert (done.returncode, done.stdout, words in done.stderr) == (3, "", True)


def test_an_unpacked_image_is_followed_with_the_libraries_that_it_has(tmp_path: Path) -> None:
    image, real = tmp_path / "image", os.path.realpath(sys.executable)
    library = f"usr/lib/python{sys.version_info[0]}.{sys.version_info[1]}"
    site, absent = image / library / "site-packages", tmp_path / "libabsent.so.3"
    compiled(absent, "")
    tag = importlib.machinery.EXTENSION_SUFFIXES[0]
    for name, linked in (("good", ()), ("lacking", (absent,))):
        compiled(site / name / "_C.so", "void *PyInit__C(void) { return 0; }\n", *linked)
        (site / name / "_C.so").rename(site / name / f"_C{tag}")
        installed(site, name)
        (site / f"{name}-1.0.dist-info/RECORD").write_text(f"{name}/__init__.py,,\n{name}/_C{tag},,\n")
    (image / library / "os.py").write_text("")
    (image / "root").mkdir()
    for path in (*(mapped.path for mapped in Process(Host(), real).mapped), "/etc/ld.so.cache"):
        at = image / (f"usr/bin/{library[8:]}" if path == real else path[1:])
        at.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, at)
    for described in ("", '{"uname": {"sysname": "Linux"}}'):
        if described:
            (image / "host.json").write_text(described)
        done = backends("resolve", "--root", str(image), "--all")
        assert done.returncode == 1
        assert "✓ good 1.0 loads\n" in done.stdout
        assert "libabsent.so.3: cannot open shared object file" in done.stdout
    (image / f"usr/bin/{library[8:]}").unlink()
    file = f"/{library}/site-packages/good/_C{tag}"
    assert backends("resolve", "--root", str(image), file).stdout == f"✓ {file} loads\n"
    assert backends("resolve", "--root", str(image)).returncode == 3


def test_info_and_doctor_show_what_does_not_load_once_for_each_cause(folder: Path) -> None:
    python = str(folder / "env/bin/python")
    page = backends("info", "--python", python, "--color", "never").stdout
    found = json.loads(backends("doctor", "--python", python, "--format", "json").stdout)
    failed = [check for check in found["checks"] if check["status"] == "failed"]

    text = " ".join(page.split())
    assert "loading lacking 1.0 does not load: libabsent.so.3: cannot open shared object file" in text
    named = {check["code"]: check for check in failed if "does not load" in check["message"]}
    assert set(named) == {"library-not-found", "symbol-not-defined"}
    assert "lacking 1.0 does not load" in named["library-not-found"]["message"]
    assert "lost" not in named["library-not-found"]["message"]  # its file is gone: that is reported
    assert "wheel-files-missing" in {check["code"] for check in failed}
    assert not any("follower" in check["message"] for check in failed)


def test_matrix_compares_packages_with_chips(folder: Path) -> None:
    site = next(folder.glob("env/lib/python*/site-packages"))
    chips = ["--for", "h100", "--for", "gb10"]
    python = f"{folder}/env/bin/python"
    shipped = "kernels/rocblas/library/TensileLibrary_gfx942.co"
    (site / "kernels/rocblas/library").mkdir(parents=True)
    (site / shipped).write_bytes(b"")
    (site / "kernels-1.0.dist-info").mkdir()
    (site / "kernels-1.0.dist-info/RECORD").write_text(f"{shipped},,\n")
    page = backends("resolve", "--python", python, "--matrix", *chips, "--for", "mi300x").stdout
    assert page.splitlines()[:2] == ["package  9.0  12.1  gfx942", "kernels  ✗    ✗     ✓"]
    assert max(map(len, page.splitlines())) <= 80
    done = backends("resolve", "--python", python, "--matrix", *chips, "--format", "json")
    assert json.loads(done.stdout)["packages"][0]["fits"] == {"9.0": "none", "12.1": "none"}
    done = backends("resolve", "--python", python, "--matrix", *chips, "--format", "markdown")
    assert "| kernels | ✗ | ✗ |" in done.stdout
    done = backends("resolve", "--python", python, "kernels", *chips)
    assert (done.returncode, "kernels 1.0 loads, then fails" in done.stdout) == (1, True)
    done = backends("resolve", "--python", python, "good", "--for", "x86-64-v9")
    assert "did you mean" in done.stderr
    done = backends("resolve", "--python", python, "good", "--for", "x86-64", "--format", "json")
    assert json.loads(done.stdout)["target"] == "x86-64-v1"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compiles for this machine")
def test_a_machine_with_an_arm_processor_cannot_load_files_for_x86(folder: Path) -> None:
    (file,) = folder.glob("env/lib/python*/site-packages/good/_C.so")
    for subject in ("good", str(file)):
        done = resolved(folder, subject, "--for", "gb10")
        assert (done.returncode, "the file is for x86_64, not for aarch64" in done.stdout) == (1, True)
        assert resolved(folder, subject, "--for", "sm_121").returncode == 0


@pytest.mark.parametrize("name", ["gb10", "NVIDIA GB10", "gh200", "Orin", "sm_121", "12.1", "h100", "b200"])
def test_a_product_with_an_arm_processor_is_such_a_machine(name: str) -> None:
    is_arm = name.lower().endswith(("gb10", "gh200", "orin"))
    assert target_machine(name).machine == ("aarch64" if is_arm else "")
