"""The release: its wheels, what is checked of them, and the workflow that publishes them."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from packaging.requirements import Requirement

from mlbackends.libraries.macho import exported_symbols, read_macho

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "kernels" / "builder"), str(Path(__file__).parent)]

import check_dist  # noqa: E402  scripts, which lie beside their likes
import check_libraries  # noqa: E402
import compilation  # noqa: E402
import wheels  # noqa: E402

WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8"))
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]
HEADER = b"int32_t mlbackends_attention_abi(void);"
EXPORTED = '__attribute__((visibility("default"))) int '
ABI = EXPORTED + "mlbackends_attention_abi(void) { return 1; }\n"
#: Windows wants a place to begin, where there is no C runtime.
ENTRY = "int DllMainCRTStartup(void *a, unsigned b, void *c) { return 1; }\n"


def compiled(folder: Path, target: str, source: str, *flags: str, name: str = "library") -> bytes:
    """Return a library made by zig of a source in C."""
    pytest.importorskip("lief")
    pytest.importorskip("ziglang")
    file, library = folder / "source.c", folder / name
    file.write_text(source + (ENTRY if "windows" in target else ""), "utf-8")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", target, "-shared", "-nostdlib"]
    subprocess.run([*command, "-o", str(library), str(file), *flags], check=True)
    return library.read_bytes()


def faults(tag: str, file: str, content: bytes) -> list[str]:
    files = {check_libraries.HEADER: HEADER, check_libraries.FOLDER + file: content}
    return list(check_libraries.library_faults(check_libraries.platform_of(tag), files))


LIBRARIES = [
    ("manylinux_2_17_x86_64", "attention.so"),
    ("manylinux_2_17_s390x", "attention.so"),
    ("musllinux_1_2_aarch64", "attention.so"),
    ("macosx_11_0_arm64", "attention.dylib"),
    ("win_amd64", "attention.dll"),
]


@pytest.mark.parametrize(("tag", "file"), LIBRARIES, ids=lambda word: word)
def test_a_library_linked_as_ours_is_right_and_the_same_in_each_folder(
    tmp_path: Path, tag: str, file: str
) -> None:
    target = compilation.target_of(["-target", wheels.PLATFORMS[tag]])
    libraries = []
    for folder in (tmp_path / "once", tmp_path / "again"):
        folder.mkdir()
        flags = compilation.link_flags(target, file, folder)
        libraries.append(compiled(folder, wheels.PLATFORMS[tag], ABI, *flags, name=file))
    assert faults(tag, file, libraries[0]) == []
    assert libraries[0] == libraries[1]


@pytest.mark.parametrize(("tag", "file"), LIBRARIES, ids=lambda word: word)
def test_a_library_for_another_processor_without_our_functions_is_wrong(
    tmp_path: Path, tag: str, file: str
) -> None:
    target = wheels.PLATFORMS[tag]
    other = "x86_64" if target.startswith("aarch64") else "aarch64"
    library = compiled(tmp_path, target.replace(target.partition("-")[0], other), EXPORTED + "other;")
    found = "; ".join(faults(tag, file, library))
    assert "is for" in found and "does not export mlbackends_attention_abi" in found


def test_what_is_newer_than_the_tag_is_found(tmp_path: Path) -> None:
    source = "extern int gettid(void);\n" + ABI.replace("1;", "gettid();")
    library = compiled(tmp_path, "x86_64-linux-gnu.2.31", source, "-lc")
    assert faults("manylinux_2_31_x86_64", "attention.so", library) == []
    assert faults("manylinux_2_17_x86_64", "attention.so", library) == [
        "attention.so needs GLIBC_2.30, newer than the tag"
    ]
    library = compiled(tmp_path, "x86_64-linux-musl", source)
    assert faults("musllinux_1_2_x86_64", "attention.so", library) == [
        "attention.so needs gettid, which musl 1.2.0 lacks"
    ]
    library = compiled(tmp_path, "aarch64-macos.12.0", ABI, "-Wl,-install_name,/tmp/built/attention.dylib")
    assert faults("macosx_11_0_arm64", "attention.dylib", library) == [
        "attention.dylib calls itself /tmp/built/attention.dylib",
        "attention.dylib is for macOS (12, 0, 0), the tag for (11, 0)",
    ]


def test_what_no_system_has_is_found(tmp_path: Path) -> None:
    target = "x86_64-linux-gnu.2.17"
    compiled(tmp_path, target, EXPORTED + "foo(void) { return 1; }\n", name="libfoo.so")
    calling = "extern int foo(void);\n" + ABI.replace("1;", "foo();")
    flags = (f"-L{tmp_path}", "-lfoo", "-Wl,-rpath,/opt/foo")
    library = compiled(tmp_path, target, calling, *flags)
    assert faults("manylinux_2_17_x86_64", "attention.so", library) == [
        "attention.so needs libfoo.so, which is no part of the system",
        "attention.so looks for libraries in ['/opt/foo']",
    ]
    assert faults("win_amd64", "attention.dll", library) == [
        "attention.dll is no library of win for one processor"
    ]
    library = compiled(tmp_path, "x86_64-windows-gnu", ABI, name="attention.dll.1")
    assert faults("win_amd64", "attention.dll", library) == [
        "attention.dll calls itself attention.dll.1",
        "attention.dll holds the time at which it was linked",
    ]


@pytest.mark.parametrize("tag", ["macosx_11_0_arm64", "macosx_11_0_x86_64"])
def test_our_reader_says_of_libraries_of_macos_what_lief_says(tmp_path: Path, tag: str) -> None:
    zig = ["-m", "ziglang", "cc", "-target", wheels.PLATFORMS[tag], "-nostdlib"]
    target, (name,) = compilation.target_of(zig), check_libraries.LIBRARIES["macosx"]
    flags = compilation.link_flags(target, name, tmp_path)
    compiled(tmp_path, wheels.PLATFORMS[tag], ABI, *flags, name=name)
    file, platform = tmp_path / name, check_libraries.platform_of(tag)
    theirs = check_libraries.read_library(platform, file.read_bytes())
    assert theirs is not None and theirs.faults == []
    (ours,) = read_macho(str(file))
    assert check_libraries.PROCESSORS[ours.machine] == theirs.processor
    assert (ours.soname, [*ours.needed]) == (theirs.name, theirs.needed)
    assert (ours.minimum, ours.rpath) == ("11.0", ())
    assert exported_symbols(str(file), {*theirs.exported, "absent"}) == theirs.exported


METADATA = ("WHEEL", "METADATA")


def wheel(folder: Path, name: str, **changes: str) -> tuple[Path, dict[str, bytes]]:
    """Return the name and the files of a small wheel."""
    info = "mlbackends-1.dist-info"
    files = {
        "mlbackends/__init__.py": b"",
        f"{info}/WHEEL": b"Root-Is-Purelib: false\nTag: py3-none-win_amd64\n",
        f"{info}/METADATA": b"Name: mlbackends\nLicense-Expression: Apache-2.0\n",
    }
    files |= {f"{info}/{part}": text.encode() for part, text in changes.items() if part in METADATA}
    lines = [f"{info}/RECORD,,"]
    for part, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        lines.append(f"{part},sha256={digest},{len(content)}")
    files[f"{info}/RECORD"] = "\n".join(lines).encode()
    files |= {f"{info}/{part}": text.encode() for part, text in changes.items()}
    return folder / name, files


@pytest.mark.parametrize(
    ("name", "changes", "fault"),
    [
        ("mlbackends-1-py3-none-win_arm64.whl", {}, "WHEEL has the tags"),
        ("mlbackends-1-py3-none-any.whl", {}, "Root-Is-Purelib: true"),
        ("mlbackends-1-py3-none-win_amd64.whl", {"METADATA": "Name: x\n"}, "names no licence"),
        ("mlbackends-1-py3-none-win_amd64.whl", {"entry_points.txt": "x"}, "wrong about"),
        ("mlbackends-1-py3-none-win_amd64.whl", {"RECORD": "gone.py,,\n"}, "has gone.py, which"),
    ],
)
def test_a_wheel_that_disagrees_with_itself_is_wrong(
    tmp_path: Path, name: str, changes: dict[str, str], fault: str
) -> None:
    assert any(fault in message for message in check_dist.metadata_faults(*wheel(tmp_path, name, **changes)))


@pytest.mark.nightly
def test_a_wheel_is_the_same_bytes_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not optimized; MLBACKENDS_RELEASE="PLATFORM..." takes these as they are released."""
    pytest.importorskip("ziglang")
    monkeypatch.delenv("MLBACKENDS_OBJECTS", raising=False)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")  # also where there is no git
    released = os.environ.get("MLBACKENDS_RELEASE", "").split()
    platforms = released or ["manylinux_2_31_riscv64"]
    for name in ("once", "again"):
        monkeypatch.setenv("ZIG_LOCAL_CACHE_DIR", str(tmp_path / f"{name}-objects"))
        options = () if released else ("-Xclang", "-disable-llvm-passes")
        wheels.build(tmp_path / name, platforms, options)
    once, again = (
        {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("once", "again")
    )
    assert once.keys() == again.keys() and len(once) == len(platforms) + 1
    assert [name for name in once if once[name] != again[name]] == []


@pytest.mark.slow
def test_the_man_pages_of_a_wheel_need_only_what_its_group_of_dependencies_has(tmp_path: Path) -> None:
    """The release builds wheels by hatchling itself, which installs no dependencies of ours."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    group = {Requirement(row).name.lower() for row in tomllib.loads(text)["dependency-groups"]["wheels"]}
    program = (
        "import runpy, sys; from importlib.metadata import packages_distributions\n"
        f"sys.argv = ['generate.py', '--into', {str(tmp_path)!r}]\n"
        "try: runpy.run_path('man/generate.py', run_name='__main__')\n"
        "except SystemExit as end: assert not end.code\n"
        "owners = packages_distributions()\n"
        "tops = {name.partition('.')[0] for name in sys.modules}\n"
        "print(*{owner.lower() for top in tops for owner in owners.get(top, ())})"
    )
    command = [sys.executable, "-c", program]
    imported = set(subprocess.check_output(command, cwd=ROOT, text=True, timeout=60).split())
    needed = {Requirement(row).name.lower() for row in requires("mlbackends") or () if "extra" not in row}
    assert imported & needed and imported & needed <= group


def test_the_page_names_each_wheel() -> None:
    page = (ROOT / "docs" / "install.md").read_text("utf-8")
    assert set(re.findall(r"`((?:many|musl)linux_\w+|macosx_\w+|win_\w+)`", page)) == {*wheels.PLATFORMS}


def test_the_workflow_publishes_a_tag_alone_and_after_all_else() -> None:
    jobs: dict[str, Any] = WORKFLOW["jobs"]
    publishing = jobs["publish"]
    assert "github.ref_type == 'tag'" in publishing["if"]
    assert {*publishing["needs"], "publish"} == {*jobs}
    assert publishing["permissions"] == {"id-token": "write"}
    assert publishing["environment"]["name"] == "pypi"
    assert publishing["steps"][-1]["with"]["attestations"] is True
    others = [job for name, job in jobs.items() if name != "publish"]
    assert all(job["permissions"] == {"contents": "read"} for job in others)
    assert WORKFLOW["permissions"] == {}


def test_the_workflows_actions_are_pinned_by_commit() -> None:
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)] == []


def test_the_workflow_runs_scripts_that_are_there() -> None:
    words = {word for step in STEPS for word in shlex.split(step.get("run", ""), comments=True)}
    files = {word for word in words if re.match(r"(\.ci|tests|kernels)/", word)}
    assert {"kernels/builder/wheels.py", "tests/contracts/try_wheels.py"} <= files
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_no_value_of_the_runner_is_part_of_a_script() -> None:
    assert [step["run"] for step in STEPS if "${{" in step.get("run", "")] == []


def test_the_workflow_of_each_change_runs_what_a_change_must_pass() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text("utf-8")
    workflow = yaml.safe_load(text)
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]

    assert {*workflow[True]} == {"push", "pull_request"}  # YAML 1.1 reads `on` as true
    assert workflow["permissions"] == {}
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    pinned = [step["uses"] for step in STEPS if "uses" in step]
    assert {step["uses"] for step in steps if "uses" in step} <= {*pinned}
