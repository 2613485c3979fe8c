"""Compare `backends resolve` with the truth on home-made environments of real wheels.

    python tests/loading/environments.py [--tenth] [--only NAME] [--from PYTHON]... [--wheels FOLDER]

Each environment is a recipe (recipes.py), a package and a seed: the package with what it requires, put
together of hard links and then changed. First `resolve` says what loads; then the environment's own
interpreter imports every package, and opens every extension module in a process of its own, under
LD_DEBUG=libs,files. Whether it loads, the missing name, the mapped files and the step that finds each library
must agree; disagreements.toml lists what does not, each with its reason, and a row that no longer differs is
an error too.

Packages come from wheels.toml, which pip downloads to FOLDER (3 GB), and from the site-packages of each
PYTHON. --tenth takes every tenth environment, of packages that are installed there alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zlib
from importlib.metadata import PathDistribution
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from packaging.requirements import Requirement

from mlbackends.host.host import Host
from mlbackends.host.interpreter import query
from mlbackends.host.python.packages import distributions, normalised
from mlbackends.loading.environment import extension_modules, modules_of
from mlbackends.loading.imports import module_name, sources
from mlbackends.loading.packages import resolve
from mlbackends.model.loading import PackageLoading, Verdict

HERE = Path(__file__).parent
#: So many extension modules of an environment are opened alone.
MOST_OPENED = 12
#: A private module that generated code of other packages imports.
IMPORTED_BY_USERS = ("_cffi_backend",)
STEPS = {
    "RPATH": "RPATH",
    "RUNPATH": "RUNPATH",
    "LD_LIBRARY_PATH": "LD_LIBRARY_PATH",
    "system search path": "default folder",
}
#: The log names a folder that the loader has met before by what it was then, RPATH or RUNPATH.
SAME_IN_LOG = ({"RPATH", "RUNPATH"}, *({step} for step in ("ld.so.cache", *STEPS.values())))


class Source:
    """A distribution to take from: unpacked, with its files relative to the folder that has it."""

    def __init__(self, folder: Path, info: Path) -> None:
        self.folder, self.metadata = folder, PathDistribution(info)
        self.name, self.version = normalised(self.metadata.metadata["Name"]), self.metadata.version
        self.files = [
            str(file)
            for file in self.metadata.files or ()
            if ".." not in file.parts and (folder / file).is_file()
        ]

    def requires(self) -> list[str]:
        """Return the names of what it requires here."""
        needs = map(Requirement, self.metadata.requires or ())
        return [normalised(n.name) for n in needs if not n.marker or n.marker.evaluate({"extra": ""})]


class Sources:
    """Every distribution that there is to take from, by name; of each the usual version first."""

    def __init__(self, pythons: list[str], wheels: Path | None) -> None:
        self.by_name: dict[str, list[Source]] = {}
        self.others: dict[str, dict[str, Source]] = {"aarch64": {}, "cp312": {}, "cp313": {}}
        for python in pythons:
            for folder in map(Path, query(python)["path"]):
                for info in sorted(folder.glob("*.dist-info")) if "site-packages" in str(folder) else ():
                    self._add(Source(folder, info))
        if wheels is None:
            return
        for wheel in sorted(wheels.glob("wheels/*.whl")):
            self._add(unpacked(wheel, wheels))
        for kind, foreign in self.others.items():
            for wheel in sorted(wheels.glob(f"{kind}/*.whl")):
                source = unpacked(wheel, wheels)
                foreign[source.name] = source

    def _add(self, source: Source) -> None:
        versions = self.by_name.setdefault(source.name, [])
        if all(source.version != other.version for other in versions):
            versions.append(source)

    def closure(self, names: list[str], without: tuple[str, ...] = ()) -> list[str]:
        """Return names and what they require, as far as it is there."""
        found: dict[str, None] = {}
        queue = list(names)
        for name in queue:
            if name in self.by_name and name not in found and name not in without:
                found[name] = None
                queue += self.by_name[name][0].requires()
        return list(found)


def unpacked(wheel: Path, base: Path) -> Source:
    """Return the distribution of a wheel, which is unpacked once."""
    folder = base / "unpacked" / wheel.parent.name / wheel.stem
    if not folder.exists():
        scratch = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(scratch, ignore_errors=True)
        with ZipFile(wheel) as archive:
            archive.extractall(scratch)
        for data in scratch.glob("*.data/*lib"):
            shutil.copytree(data, scratch, dirs_exist_ok=True)
        compiler = [sys.executable, "-m", "compileall", "-q", str(scratch), "-s", str(scratch)]
        subprocess.run(compiler, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        scratch.rename(folder)
    return Source(folder, next(folder.glob("*.dist-info")))


def download(folder: Path) -> None:
    """Have pip download what is not there yet of wheels.toml."""
    for kind, pins in tomllib.loads((HERE / "wheels.toml").read_text()).items():
        (folder / kind).mkdir(parents=True, exist_ok=True)
        foreign = {
            "aarch64": [
                *(f"--platform=manylinux_2_{n}_aarch64" for n in (17, 26, 27, 28)),
                "--python-version=3.11",
            ],
            "cp312": [
                *(f"--platform=manylinux_2_{n}_x86_64" for n in (17, 24, 27, 28)),
                "--python-version=3.12",
            ],
        }.get(kind, [])
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", *foreign]
        for pin in pins:
            if not any(folder.glob(f"{kind}/{pin.replace('==', '-')}-*.whl")):
                subprocess.run([*pip, "-d", str(folder / kind), pin], check=False)


class Environment:
    """A home-made environment. site: its site-packages; variables: those of its processes."""

    def __init__(self, root: Path, sources: Sources, seed: int, python: str = sys.executable) -> None:
        self.root, self.sources, self.random = root, sources, random.Random(seed)
        base = Path(query(python)["base_prefix"])
        version = ".".join(query(python)["version"].split(".")[:2])
        self.base, self.tag = base / "bin" / f"python{version}", version
        self.site = root / "lib" / f"python{version}" / "site-packages"
        self.site.mkdir(parents=True)
        (root / "bin").mkdir()
        self.python = root / "bin" / "python"
        self.python.symlink_to(self.base)
        (root / "pyvenv.cfg").write_text(
            f"home = {base}/bin\ninclude-system-site-packages = false\nversion = {version}\n"
        )
        self.variables = {"PATH": "/usr/bin:/bin", "HOME": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
        #: Modules of the packages that are asked about.
        self.subjects: list[str] = []

    def install(self, source: Source, *, folder: Path | None = None) -> None:
        """Put a distribution there, as hard links."""
        made = set()
        for name in source.files:
            target = (folder or self.site) / name
            if target.parent not in made:
                target.parent.mkdir(parents=True, exist_ok=True)
                made.add(target.parent)
            cached = source.folder / os.path.dirname(name) / "__pycache__"
            if not target.exists():
                os.link(source.folder / name, target)
            if name.endswith(".py") and cached.is_dir():
                code = f"{os.path.basename(name)[:-3]}.cpython-{self.tag.replace('.', '')}.pyc"
                (target.parent / "__pycache__").mkdir(exist_ok=True)
                if (cached / code).exists() and not (target.parent / "__pycache__" / code).exists():
                    os.link(cached / code, target.parent / "__pycache__" / code)

    def replace(self, path: Path, data: bytes) -> None:
        """Give a file other content, of which other links know nothing."""
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    def shared(self, name: str) -> list[Path]:
        """Return the shared objects that a package installed and that are there."""
        found = [
            self.site / file
            for file in self.sources.by_name[name][0].files
            if re.search(r"\.so(\.[\d.]+)?$", file)
        ]
        return sorted((path for path in found if path.exists()), key=str)

    def libraries(self, name: str) -> list[Path]:
        """Return the libraries that a package brings for its extension modules."""
        return [
            path
            for path in self.shared(name)
            if not re.search(r"\.(cpython-\w+-[\w-]+|abi3)\.so$", path.name)
        ]

    def modules(self, name: str) -> list[Path]:
        """Return its extension modules."""
        libraries = set(self.libraries(name))
        return [path for path in self.shared(name) if path not in libraries]


# ---- prediction and truth ---------------------------------------------------------------------------


def truth(environment: Environment, after: tuple[str, ...], jobs: list[dict[str, str]]) -> dict[str, Any]:
    """Do jobs in the environment, and return what came of each, with the loader's own searches."""
    log = environment.root / f"ld-{zlib.crc32(repr(after).encode())}"
    variables = {**environment.variables, "LD_DEBUG": "libs,files", "LD_DEBUG_OUTPUT": str(log)}
    done = subprocess.run(
        [str(environment.python), str(HERE / "truth.py")],
        input=json.dumps([after, jobs]), capture_output=True, text=True, env=variables, cwd=environment.root,
        check=False, timeout=1200,
    )  # fmt: skip
    if not done.stdout:
        return {"error": f"status {done.returncode}: {done.stderr[-500:]}", "jobs": []}
    answers: dict[str, Any] = json.loads(done.stdout)
    searches: dict[str, dict[str, tuple[str, str]]] = {}
    missing: dict[str, set[str]] = {}
    for file in log.parent.glob(f"{log.name}.*"):
        pid = name = kind = ""
        for line in file.read_text(errors="replace").splitlines():
            head, _, text = line.partition(":\t")
            pid, text = head.strip(), text.strip()
            if text.startswith("find library="):
                name, kind = text[13:].rpartition(" [")[0], ""
                missing.setdefault(pid, set()).add(name)
            elif "error: " in text:
                missing.setdefault(pid, set()).add(text)
            elif text.startswith("file=") and "generating link map" in text:
                missing.get(pid, set()).discard(text[5:].rpartition(" [")[0])
            elif text.startswith("search path="):
                kind = next((step for sign, step in STEPS.items() if f"({sign}" in text), "")
            elif text.startswith("search cache="):
                kind = "ld.so.cache"
            elif text.startswith("trying file=") and name:
                searches.setdefault(pid, {}).setdefault(name, ("", ""))
                searches[pid][name] = (text[12:], kind)
    for answer in answers["jobs"]:
        answer["missing"] = missing.get(str(answer["pid"]), set())
        answer["searches"] = searches.get(str(answer["pid"]), {})
    return answers


def compared(environment: Environment, most: int) -> list[str]:
    """Return where prediction and truth differ, one line each; so many extension modules are opened alone."""
    python = query_in(environment)
    host = Host("/", python=python, environment=environment.variables)
    dists = [d[0] for name, d in distributions(host).items() if name in environment.subjects]
    paths = {
        path: dist
        for dist in dists
        for path in extension_modules(host, dist).values()
        if os.path.isfile(path)
    }
    chosen = environment.random.sample(sorted(paths), min(len(paths), most))
    os.chdir(environment.root)
    packages = resolve(host, [dist.name for dist in dists], with_files=True).packages
    files = resolve(host, chosen, with_files=True).packages if chosen else ()
    different = []
    jobs = [{"import": module} for dist in dists for module in modules_of(host, dist)]
    answers = truth(environment, (), jobs)
    if answers["error"]:
        return [f"truth: {answers['error']}"]
    by_module = {job["import"]: answer for job, answer in zip(jobs, answers["jobs"], strict=True)}
    for dist, package in zip(dists, packages, strict=True):
        own = modules_of(host, dist)
        if package.verdict is Verdict.FAILS and not any(by_module[m]["error"] for m in own):
            # Its users import other modules: those beside the files that fail come first.
            beside = {os.path.dirname(path) for fault in package.faults for path in fault.path}
            texts = [path for path in sources(host, dist) if "/tests/" not in path]
            texts.sort(key=lambda path: os.path.dirname(path) not in beside)
            names = (module_name(host, dist, path) for path in texts[:MOST_OPENED])
            own = tuple(filter(None, names))
            answers = truth(environment, (), [{"import": module} for module in own])["jobs"]
            by_module |= dict(zip(own, answers, strict=True))
        # A private module beside the package, as PyYAML's _yaml, is no name that users import: without it the
        # package falls back.
        public = [
            module for module in own if not module.startswith("_") or module in IMPORTED_BY_USERS
        ] or own
        errors = {m: by_module[m]["error"] for m in own if by_module[m]["error"]}
        gone = set().union(*(by_module[m]["missing"] for m in own))
        if errors and package.verdict is Verdict.LOADS:
            different.append(f"{package.name} loads, truth {errors}")
        errors = {module: error for module, error in errors.items() if module in public}
        different += _package_differs(package, errors, gone)
    for after in {file.after for file in files}:
        some = [file for file in files if file.after == after]
        answers = truth(environment, after, [{"open": file.name} for file in some])
        if answers["error"]:
            different += [f"import {', '.join(after)}: {answers['error']}"]
            continue
        for file, answer in zip(some, answers["jobs"], strict=True):
            different += _file_differs(file, answer)
    return [line.replace(str(environment.root), "ENV") for line in different]


def query_in(environment: Environment) -> dict[str, Any]:
    """Return what the environment's interpreter says of itself under its own variables."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(environment.variables)
    try:
        return query(str(environment.python))
    finally:
        os.environ.clear()
        os.environ.update(before)


def is_cut(package: PackageLoading) -> bool:
    """Return whether the end of a file is missing: what comes of that is chance."""
    return bool(package.faults) and "the loader has zeros for them" in package.faults[0].message


def own_modules_fail(environment: Environment) -> bool:
    """Return whether compiled modules of the interpreter itself do not load under its variables."""
    answers = truth(environment, (), [{"import": module} for module in ("math", "zlib")])["jobs"]
    return any(answer["error"] for answer in answers)


def _package_differs(package: PackageLoading, errors: dict[str, str], gone: set[str]) -> list[str]:
    """Compare a package. errors: of its modules, by name. gone: what the loader did not find, and says."""
    fails = package.verdict is Verdict.FAILS
    said = [fault.message for fault in package.faults]
    if is_cut(package):
        return []
    if fails != bool(errors) or package.verdict is Verdict.UNKNOWN:
        return [f"{package.name} {package.verdict}: {said}, truth {errors}"]
    if fails:
        fault = package.faults[0]
        # A package may hide the loader's words; its log has them.
        in_log = any(fault.name in line for line in gone)
        hidden = in_log or (fault.cause and any(fault.cause in error for error in errors.values()))
        if not hidden and not any(named(fault.name, fault.message, error) for error in errors.values()):
            return [f"{package.name} names {fault.name}: {said[:1]}, truth {errors}"]
    return []


def named(name: str, message: str, error: str) -> bool:
    """Return whether an error is about what a fault names."""
    if error.startswith("ended with status"):
        return True
    error = error.replace("partially initialized module ", "")
    return name in error or message in error or os.path.basename(message.partition(":")[0]) in error


def _file_differs(file: PackageLoading, answer: dict[str, Any]) -> list[str]:
    fails, error = bool(file.faults), answer["error"]
    if is_cut(file):
        return []
    if fails != bool(error):
        return [f"{file.name} {file.verdict}: {[f.message for f in file.faults][:2]}, truth {error!r}"]
    if fails:
        said = file.faults[0].message
        exact = error.startswith("ended with") or said == error or named_exactly(file, error)
        return [] if exact else [f"{file.name} names {file.faults[0].name}: {said!r}, truth {error!r}"]
    before, now = ({os.path.realpath(p) for p in answer[key]} for key in ("before", "mapped"))
    expected = {os.path.realpath(loaded.path) for loaded in file.files}
    different = []
    if not (now - before <= expected <= now):
        lost = sorted(now - before - expected)
        different.append(f"{file.name} maps: wrongly expected {sorted(expected - now)}, not expected {lost}")
    for loaded in file.files:
        for need in loaded.needs:
            path, step = answer["searches"].get(need.name, ("", ""))
            if (
                path
                and need.step != "already loaded"
                and os.path.realpath(path) != os.path.realpath(need.path)
            ):
                different.append(
                    f"{file.name} finds {need.name}: {need.path} by {need.step}, truth {path} by {step}"
                )
            elif (
                path
                and not {need.step, step} <= {"RPATH", "RUNPATH"}
                and need.step not in ("already loaded", step)
            ):
                different.append(f"{file.name} finds {need.name} by {need.step}, truth {step}")
    return different


def named_exactly(file: PackageLoading, error: str) -> bool:
    """Return whether the loader's words have the name, and the file that the first fault is about."""
    fault = file.faults[0]
    if fault.code in ("not-a-library", "wrong-architecture"):
        return os.path.basename(fault.name) in error
    return fault.name in error and fault.message.partition(":")[0] in error


# ---- all of them --------------------------------------------------------------------------------------


def main() -> int:
    """Make every environment, compare, and print the table."""
    from recipes import PLAN, NotApplicable

    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tenth", action="store_true")
    options.add_argument("--only", default="")
    options.add_argument("--part", default="0/1", help="which part of how many, to run several at once")
    options.add_argument("--from", dest="pythons", action="append", default=[])
    options.add_argument("--wheels", type=Path)
    options.add_argument("--keep", type=Path, help="a folder in which the environments stay")
    options.add_argument("--log", type=Path, help="a file for the differences")
    chosen = options.parse_args()
    if chosen.wheels:
        download(chosen.wheels)
    sources = Sources(chosen.pythons, chosen.wheels)
    with (HERE / "disagreements.toml").open("rb") as file:
        known = {row["environment"]: row["because"] for row in tomllib.load(file).get("disagreement", ())}
    plan = PLAN(sources)
    if chosen.tenth:
        plan = plan[::10]
    part, parts = map(int, chosen.part.split("/"))
    plan = [row for row in plan if chosen.only in row[0]][part::parts]
    agree = explained = wrong = skipped = 0
    start = time.monotonic()
    for name, recipe, package in plan:
        with tempfile.TemporaryDirectory(
            prefix="truth-", dir=os.path.dirname(str(chosen.wheels)) if chosen.wheels else None
        ) as scratch:
            root = (chosen.keep or Path(scratch)) / name.replace("/", "-")
            shutil.rmtree(root, ignore_errors=True)
            environment = Environment(root, sources, zlib.crc32(name.encode()))
            try:
                recipe(environment, package)
            except NotApplicable:
                skipped += 1
                continue
            begun = time.monotonic()
            different = compared(environment, most=5 if chosen.tenth else MOST_OPENED)
            if different and own_modules_fail(environment):  # packages alone are judged
                print(f"- {name}  compiled modules of this Python itself do not load there", flush=True)
                skipped += 1
                continue
        is_known = name in known
        agree += not different
        explained += bool(different) and is_known
        unexpected = bool(different) != is_known
        wrong += unexpected
        sign = "≠" if different else "="
        print(
            f"{sign} {name}  {time.monotonic() - begun:.1f} s"
            + " (no longer differs)" * (is_known and not different),
            flush=True,
        )
        for line in different[:6] if unexpected else ():
            print(f"    {line[:700]}", flush=True)
    total = max(1, len(plan) - skipped)
    print(f"{total} environments: {agree} agree ({100 * agree / total:.1f} %), {explained} explained, "
          f"{wrong} to be looked at; {time.monotonic() - start:.0f} s")  # fmt: skip
    return bool(wrong) or agree < 0.99 * total


if __name__ == "__main__":
    sys.exit(main())
