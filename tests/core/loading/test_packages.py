"""What becomes of packages whose files are gone, damaged or others; the words are those of a real import."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.core.loading.test_later import Site

from mlbackends.host.host import Host
from mlbackends.loading.packages import resolve
from mlbackends.model.loading import PackageLoading, Verdict

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    return Site(tmp_path)


def python_says(site: Site, module: str) -> str:
    """Return what importing a module fails with."""
    program = f"import sys; sys.path.insert(0, {str(site.folder)!r}); import {module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return done.stderr


def installed(site: Site, files: dict[str, str]) -> None:
    """Install the package pack of modules with a text each, and of compiled ones."""
    for path, text in files.items():
        (site.folder / path).parent.mkdir(parents=True, exist_ok=True)
        if path.endswith((".py", ".1")):
            (site.folder / path).write_text(text)
        else:
            site.library(path, module=text)
    site.package("pack", "1.0", *files)


IMAGES = {
    "pack/__init__.py": "",
    "pack/image.py": "from . import _imaging",
    "pack/font.py": "from . import image\ntry:\n    from . import _font\nexcept ImportError:\n    pass",
    "pack/_imaging.so": "_imaging",
    "pack/_font.so": "_font",
    "pack/tests/_checks.so": "_checks",
    "pack.libs/libextra.so.1": "",
}


def test_a_lost_file_costs_what_users_import_or_a_part(site: Site) -> None:
    installed(site, IMAGES)
    assert site.answer("pack").verdict is Verdict.LOADS
    for lost, verdict in (
        ("pack/_imaging.so", Verdict.FAILS),
        ("pack/image.py", Verdict.FAILS),
        ("pack/_font.so", Verdict.FALLS_BACK),
        ("pack.libs/libextra.so.1", Verdict.FALLS_BACK),
        ("pack/tests/_checks.so", Verdict.LOADS),
    ):
        path = site.folder / lost
        path.rename(site.folder / "kept")
        answer = site.answer("pack")
        [fault] = answer.faults or answer.fallbacks or answer.parts
        assert (answer.verdict, fault.path) == (verdict, (str(path),))
        assert verdict is not Verdict.FAILS or fault.message in python_says(site, "pack.image")
        (site.folder / "kept").rename(path)
    (site.folder / "pack/_font.so").write_bytes(b"")
    assert site.answer("pack").fallbacks[0].code == "not-a-library"


@pytest.mark.parametrize("init", ["from . import _C", "import pack._C", ""])
def test_another_file_in_the_place_of_a_module(site: Site, init: str) -> None:
    installed(site, {"pack/__init__.py": init, "pack/tool.py": "from pack import _C", "pack/_C.so": "_B"})
    answer = site.answer("pack")
    assert (answer.verdict, len(answer.faults)) == (Verdict.FAILS, 1)
    assert answer.faults[0].message in python_says(site, "pack.tool")


def test_what_a_function_of_the_package_opens_needs_not_be_a_module(site: Site) -> None:
    texts = {
        "pack/__init__.py": "",
        "pack/raw.py": "def load(module, code): ...",
        "pack/tool.py": "from .raw import load\nlib = load('pack._raw', 'int f();')",
    }
    installed(site, {**texts, "pack/_raw.so": ""})
    assert site.answer("pack").verdict is Verdict.LOADS
    (site.folder / "pack/_raw.so").unlink()
    assert site.answer("pack").verdict is Verdict.FAILS


def test_a_library_with_the_name_of_a_module_that_none_imports_is_no_fault(site: Site) -> None:
    tool = "import ctypes, pathlib\nctypes.CDLL(str(pathlib.Path(__file__).parent / ('co' + 'de.so')))"
    installed(site, {"pack/__init__.py": "", "pack/tool.py": tool, "pack/code.so": ""})
    assert python_says(site, "pack.tool") == ""
    answer = site.answer("pack")
    assert (answer.verdict, answer.faults, answer.parts) == (Verdict.LOADS, (), ())


def test_a_package_without_its_init_is_empty_and_one_without_an_empty_init_is_whole(site: Site) -> None:
    installed(site, {"pack/__init__.py": "f = 1", "pack/_C.so": "_C"})
    (site.folder / "pack/__init__.py").unlink()
    [fault] = site.answer("pack").fallbacks
    assert fault.message == f"{site.folder}/pack/__init__.py: No such file or directory"
    assert fault.cause == "pack 1.0 installed it; it is gone."
    assert not python_says(site, "pack")
    (site.folder / "pack-1.0.dist-info/RECORD").write_text("pack/__init__.py,sha256=47DEQ,0\npack/_C.so,,\n")
    assert site.answer("pack").verdict is Verdict.LOADS


@pytest.mark.parametrize(
    ("text", "fails"),
    [("from .sub import name", True), ("from . import sub", False), ("import pack.sub", False)],
)
def test_names_of_a_folder_without_its_init_cannot_be_imported(site: Site, text: str, fails: bool) -> None:
    installed(site, {"pack/__init__.py": f"import pack.sub\n{text}", "pack/sub/__init__.py": "name = 1"})
    (site.folder / "pack/sub/__init__.py").unlink()
    answer: PackageLoading = site.answer("pack")
    assert answer.verdict is (Verdict.FAILS if fails else Verdict.FALLS_BACK)
    assert bool(python_says(site, "pack")) is fails
    assert not fails or answer.faults[0].message in python_says(site, "pack")


def test_packages_in_a_namespace_are_followed(site: Site) -> None:
    installed(site, {"space/pack/__init__.py": "import space.pack._C", "space/pack/_C.so": "_C"})
    (site.folder / "space/pack/_C.so").unlink()
    [fault] = site.answer("pack").faults
    assert fault.message in python_says(site, "space.pack")


@pytest.mark.parametrize("init", ["from . import _C, pool", "from . import _C"])
def test_only_a_module_that_is_needed_makes_another_package_come_first(site: Site, init: str) -> None:
    site.package("vino", "1.0", site.library("vino/_vino.so", module="_vino"), vino="from . import _vino")
    files = [site.library("pack/_C.so", module="_C"), site.library("pack/pool.so", "_vino.so", module="pool")]
    site.package("pack", "1.0", *files, pack=init)
    assert site.answer("pack").after == ("vino",) * ("pool" in init)


@pytest.mark.parametrize("kind", ["pth", "finder", "egg"])
def test_an_editable_install_is_judged_by_its_sources(site: Site, tmp_path: Path, kind: str) -> None:
    sources = tmp_path / "project/src"
    site.library("../project/src/pack/_C.so", "libnone.so.913", module="_C")
    (sources / "tests").mkdir()
    for folder, text in (("pack", "from . import _C"), ("tests", "import absent")):
        (sources / folder / "__init__.py").write_text(text)
    origin = f'{{"url": "file://{sources}", "dir_info": {{"editable": true}}}}'
    info = (sources / "pack.egg-info") if kind == "egg" else (site.folder / "pack-1.0.dist-info")
    info.mkdir()
    (info / "direct_url.json").write_text(origin)
    if kind == "pth":
        (site.folder / "_pack.pth").write_text(f"{sources}\n")
        (info / "RECORD").write_text("_pack.pth,,\n")
    elif kind == "finder":
        finder = site.folder / "__editable___pack_1_0_finder.py"
        finder.write_text(f"MAPPING: dict[str, str] = {{'pack': '{sources}/pack'}}\n")
        (info / "RECORD").write_text(f"__editable__.pack-1.0.pth,,\n{finder.name},,\n")
    else:
        (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: pack\nVersion: 1.0\n")
        (info / "top_level.txt").write_text("pack\n")
    site.package("user", "1.0", site.library("user/_U.so", module="_U"), user="import pack\nfrom . import _U")
    path = [str(site.folder), *[str(sources)] * (kind != "finder")]
    host = Host(python={**site.host().python, "path": path})
    info = site.folder / "user-1.0.dist-info/METADATA"
    info.write_text(f"{info.read_text()}Requires-Dist: pack\n")
    pack, user = resolve(host, ["pack", "user"]).packages
    assert (pack.verdict, user.verdict) == (Verdict.FAILS, Verdict.FAILS)
    assert (pack.version, pack.faults[0].path[0]) == ("1.0", f"{sources}/pack/_C.so")
    (sources / "pack/_C.so").write_bytes(b"")
    [fault] = resolve(Host(python=host.python), ["pack"]).packages[0].faults
    assert fault.command.endswith(f"install --no-deps -e {sources}") or kind == "egg"


def test_compiled_files_beside_an_editable_install_of_python_code_count(site: Site, tmp_path: Path) -> None:
    (tmp_path / "src/pack").mkdir(parents=True)
    (tmp_path / "src/pack/__init__.py").write_text("from . import _C")
    (site.folder / "_pack.pth").write_text(f"{tmp_path}/src\n")
    site.package("pack", "1.0", "_pack.pth", site.library("pack/_C.so", "libnone.so.913", module="_C"))
    [fault] = site.answer("pack").parts
    assert fault.name == "libnone.so.913"


@pytest.mark.parametrize(("numpy", "verdict"), [("1.26.4", Verdict.FAILS), ("2.0.2", Verdict.LOADS)])
def test_a_release_that_the_package_s_own_code_refuses_is_a_fault(
    site: Site, numpy: str, verdict: Verdict
) -> None:
    """The code of pandas compares numpy's version with the oldest that it takes."""
    extension = site.library("pandas/_libs/lib.so", module="lib")
    site.package("pandas", "3.1.1", extension, pandas="from pandas._libs import lib")
    with (site.folder / "pandas-3.1.1.dist-info/METADATA").open("a") as metadata:
        metadata.write("Requires-Dist: numpy>=2.0.2\n")
    site.package("numpy", numpy, numpy="")
    answer = site.answer("pandas")

    assert answer.verdict is verdict
    if answer.faults:
        assert answer.faults[0].message == f"pandas needs numpy>=2.0.2; {numpy} is installed"
        assert answer.faults[0].command.endswith("'numpy>=2.0.2'")


@pytest.mark.parametrize(
    ("text", "other", "fails"),
    [
        ("from base import new", "old = 1", True),
        ("from base.part import new", "", True),
        ("from base.new import old", "old = 1", True),
        ("import base.part.new", "", True),
        ("from base.part import old, __name__", "", False),
        ("from base import name", "from base.part import *", False),
        ("from base import new", "def __getattr__(name): return 1", False),
        ("from base import new", "globals()['n' + 'ew'] = 1", False),
        (
            "from base.new import name",
            "import sys, base.part\nsys.modules['base.' + 'new'] = base.part",
            False,
        ),
        ("try:\n    from base import new\nexcept ImportError:\n    pass", "", False),
        ("from base import new", "from base import built", False),
        ("import __main__, base", "", False),
    ],
)
def test_a_name_that_an_older_package_lacks_is_a_fault(
    site: Site, text: str, other: str, fails: bool
) -> None:
    files = {"base/__init__.py": other, "base/part.py": "old = name = 1\nif old:\n    def also(): pass"}
    if "built" in other:  # as tlz/_build_tlz.py
        files["base/built.py"] = "import sys, types\nmodule = types.ModuleType('base')\n"
        files["base/built.py"] += "setattr(module, 'n' + 'ew', 1)\nsys.modules['base'] = module"
    for path, content in files.items():
        (site.folder / path).parent.mkdir(exist_ok=True)
        (site.folder / path).write_text(content)
    site.package("base", "1.0", *files)
    installed(site, {"pack/__init__.py": text})
    with (site.folder / "pack-1.0.dist-info/METADATA").open("a") as metadata:
        metadata.write("Requires-Dist: base>=2\n")
    answer, words = site.answer("pack"), python_says(site, "pack")

    assert answer.verdict is (Verdict.FAILS if fails else Verdict.LOADS)
    assert bool(words) is fails
    if fails:
        assert answer.faults[0].message in words
        assert answer.faults[0].command.endswith("'base>=2'")


def test_a_module_that_is_cut_off_ends_the_process_also_in_a_try(site: Site) -> None:
    """The loader maps it, and the process gets SIGBUS where it reads beyond the file's end."""
    texts = {
        "pack/__init__.py": "try:\n    from . import _C\nexcept ImportError:\n    pass",
        "pack/_C.so": "_C",
    }
    installed(site, texts)
    site.package("user", "1.0", user="try:\n    import pack\nexcept ImportError:\n    pass")
    data = (site.folder / "pack/_C.so").read_bytes()
    (site.folder / "pack/_C.so").write_bytes(data[:6000])
    program = f"import sys; sys.path.insert(0, {str(site.folder)!r}); import user"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == -signal.SIGBUS
    assert [site.answer(name).verdict for name in ("pack", "user")] == [Verdict.FAILS] * 2
    (site.folder / "pack/_C.so").write_bytes(data[:40])
    assert [site.answer(name).verdict for name in ("pack", "user")] == [Verdict.FALLS_BACK, Verdict.LOADS]


@pytest.mark.parametrize(("init", "fails"), [((), False), (("pack/third/__init__.py",), True)])
def test_a_module_in_a_folder_that_the_package_adds_to_the_path(
    site: Site, init: tuple[str, ...], fails: bool
) -> None:
    """As ray/thirdparty_files/psutil; a module of the package's own is no such module."""
    text = "import os, sys\nsys.path.insert(0, f'{os.path.dirname(__file__)}/third')\nimport tool"
    text = "import tool" if fails else text
    installed(site, dict.fromkeys(init, "") | {"pack/__init__.py": text, "pack/third/tool/__init__.py": ""})
    assert site.answer("pack").verdict is (Verdict.FAILS if fails else Verdict.LOADS)
    assert bool(python_says(site, "pack")) is fails


def test_what_is_imported_instead_of_a_damaged_module_is_needed(site: Site) -> None:
    """As lmdb, whose other half needs cffi."""
    text = "try:\n    from pack._C import f\nexcept ImportError:\n    from . import plain"
    installed(site, {"pack/__init__.py": text, "pack/plain.py": "import absent", "pack/_C.so": "_C"})
    assert site.answer("pack").verdict is Verdict.LOADS
    (site.folder / "pack/_C.so").write_bytes(b"")
    answer = site.answer("pack")
    assert answer.verdict is Verdict.FAILS
    assert [fault.message for fault in answer.faults] == ["No module named 'absent'"]
    assert answer.faults[0].message in python_says(site, "pack")
    (site.folder / "pack/plain.py").write_text("")
    assert site.answer("pack").verdict is Verdict.FALLS_BACK and not python_says(site, "pack")


def test_what_generated_code_imports_at_its_start_is_needed(site: Site) -> None:
    """As argon2-cffi-bindings without cffi."""
    code = 'char *name = "_cffi_backend"; extern void *PyImport_ImportModule(char *);'
    code += " void *PyInit__C(void) { return PyImport_ImportModule(name); }"
    site.package("pack", "1.0", site.library("pack/_C.so", code=code), pack="from . import _C")
    info = site.folder / "pack-1.0.dist-info/METADATA"
    info.write_text(f"{info.read_text()}Requires-Dist: cffi\n")
    assert [fault.message for fault in site.answer("pack").faults] == ["No module named '_cffi_backend'"]
    site.package("cffi", "1.0", site.library("_cffi_backend.so", module="_cffi_backend"))
    assert site.answer("pack").verdict is Verdict.LOADS


def test_a_name_that_a_package_lacks_in_a_circle_of_imports(site: Site) -> None:
    """Once it was followed round and round, as zope.interface without its interfaces.py."""
    texts = {
        "pack/__init__.py": "from . import a",
        "pack/a.py": "from pack import absent",
        "pack/_C.so": "_C",
    }
    installed(site, texts)
    [fault] = site.answer("pack").faults
    assert fault.message.startswith("cannot import name 'absent' from 'pack'")
    assert "cannot import name 'absent' from" in python_says(site, "pack")
