"""What would be installed: the wheels of a lock file, and those that a requirement would bring.

Dependencies are resolved by uv or pip, which the environment or PATH has, without installing or building
anything. Sources: PyPA, "pylock.toml Specification", "Platform compatibility tags", "Dependency specifiers";
uv's documentation, "Resolution" and "Locking and syncing", and the files that uv writes.
"""

import os
import posixpath
import re
import sys
import tempfile
import tomllib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from mlbackends.base.errors import BadInput, Incomplete, counted, some
from mlbackends.base.mounts import which
from mlbackends.base.patterns import without_secrets
from mlbackends.base.quantities import dotted_numbers
from mlbackends.host.command import outcome_of
from mlbackends.host.files import named_bytes
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.packages import normalised
from mlbackends.host.python.requirements import holds, marker_environment
from mlbackends.loading.web import RangeFile, Web, local_path
from mlbackends.loading.wheels import Wheel
from mlbackends.model.loading import Fault, PackageLoading, Verdict

#: A wheel's name and its address.
File = tuple[str, str]


class Plan(NamedTuple):
    """Wheels that would be installed. lacking: packages without a wheel that fits. notes: what to know."""

    files: list[File]
    lacking: dict[str, Fault]
    notes: tuple[str, ...] = ()

    def wheels(self, web: Web, progress: Callable[[int, int, str], None] | None = None) -> list[Wheel]:
        """Open the wheels: of each, its list of files is read. Raises Incomplete."""
        opened = []
        for i, (name, address) in enumerate(self.files):
            if progress:
                progress(i, len(self.files), name)
            try:
                opened.append(Wheel(name, RangeFile(web, address)))
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", "") or error
                raise Incomplete(f"{local_path(address)} cannot be read: {why}") from None
        return opened

    def answers(self, source: str, names: Container[str]) -> list[PackageLoading]:
        """Return the answers for packages without a wheel, one for many that lack it for the same reason."""
        by_code: dict[str, list[tuple[str, Fault]]] = {}
        for name, fault in self.lacking.items():
            if name in names:
                by_code.setdefault(fault.code, []).append((name, fault))
        answers = []
        for code, faults in by_code.items():
            verdict = Verdict.UNKNOWN if code == "not-read" else Verdict.FAILS
            if len(faults) > _MOST_ALIKE:  # one cause, such as a lock for another machine
                also = f"the same is true of {some(tuple(name for name, _ in faults[1:]))}"
                faults = [(source, msgspec.structs.replace(faults[0][1], cause=also))]
            for name, fault in faults:
                package, _, version = name.partition(" ")
                answers.append(PackageLoading(package, version, verdict, faults=(fault,)))
        return answers


# ---- locks -----------------------------------------------------------------------------------------


def locked(host: Host, path: str) -> Plan:
    """Return what a pylock.toml or uv.lock installs, without groups and extras. Raises BadInput."""
    files: list[File] = []
    lacking: dict[str, Fault] = {}
    try:
        data = tomllib.loads(named_bytes(path, 64 << 20, "lock file").decode())
        is_uv = "package" in data
        if "lock-version" not in data and not is_uv:
            raise BadInput(f"{path} is neither a pylock.toml nor a uv.lock")
        base = f"file://{os.path.abspath(path)}"
        chosen = _of_uv(host, data) if is_uv else _of_pylock(host, data)
        for package in chosen:
            name, wheels = f"{package['name']} {package.get('version', '')}".strip(), _wheels(package, base)
            if best := best_wheel(host, wheels):
                files.append(best)
            else:
                lacking[name] = _lacking(host, name, wheels, can_build="sdist" in package or not wheels)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"{path} is not a lock file: {error}") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, BadInput):
            raise
        raise BadInput(f"{path} is not a valid lock file: {type(error).__name__}: {error}") from None
    return Plan(files, lacking)


def _of_pylock(host: Host, data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    groups = {"extras": set(), "dependency_groups": set(map(normalised, data.get("default-groups", ())))}
    for package in data["packages"]:
        marker = re.sub(
            r"""(['"])([\w.-]+)\1\s+(not\s+)?in\s+(extras|dependency_groups)""",
            lambda found: (
                f"'x' {'not ' * bool(found[3])}in '{'x' * (normalised(found[2]) in groups[found[4]])}'"
            ),
            package.get("marker", ""),
        )
        if not marker or holds(marker, marker_environment(host)) is not False:
            yield package


def _of_uv(host: Host, data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the packages that the members of a uv.lock need, the members themselves left out."""
    environment = marker_environment(host)
    todo: list[tuple[dict[str, Any], str]] = []
    by_name: dict[str, list[dict[str, Any]]] = {}
    for package in data["package"]:
        by_name.setdefault(package["name"], []).append(package)
        if set(package["source"]) & {"editable", "virtual"} or package["source"].get("directory") == ".":
            todo.append((package, ""))
    chosen: dict[int, dict[str, Any]] = {}
    seen = {(id(package), extra) for package, extra in todo}
    for package, extra in todo:  # grows as it is walked
        if not set(package["source"]) & {"editable", "virtual"}:
            chosen[id(package)] = package
        needs = package.get("dependencies", ())
        for need in package.get("optional-dependencies", {}).get(extra, ()) if extra else needs:
            if need.get("marker") and holds(need["marker"], environment) is False:
                continue
            for other in by_name[need["name"]]:
                is_meant = all(
                    need.get(key, other.get(key)) == other.get(key) for key in ("version", "source")
                )
                forks = other.get("resolution-markers", ())
                if not is_meant or (forks and all(holds(fork, environment) is False for fork in forks)):
                    continue
                for wanted in ("", *need.get("extra", ())):
                    if (id(other), wanted) not in seen:
                        seen.add((id(other), wanted))
                        todo.append((other, wanted))
    return list(chosen.values())


def _wheels(package: dict[str, Any], base: str) -> list[File]:
    """Return the wheels of a package in a lock, each as its name and its address."""
    source = package.get("source", {})
    folder = source.get("registry", "") if isinstance(source, dict) else ""
    archives = [package["archive"]] if "archive" in package else []
    files = []
    for wheel in (*package.get("wheels", ()), *archives):
        # uv's own paths are below the registry, those of the specification relative to the lock.
        address = wheel.get("url") or wheel.get("path") or wheel.get("filename", "")
        if not re.match(r"[a-z]+:/|/", address):
            address = urljoin(base, posixpath.join(folder if local_path(folder) else "", address))
        name = wheel.get("name") or unquote(urlsplit(address).path.rpartition("/")[2])
        if name.endswith(".whl"):
            files.append((name, address))
    return files


# ---- requirements ----------------------------------------------------------------------------------


def if_installed(host: Host, wanted: Sequence[str], index: str, *, alone: bool = False) -> Plan:
    """Return what installing requirements would bring into an environment. Raises BadInput and Incomplete.

    index: the address of a package index, or a folder of wheels; "" for what uv or pip are configured for.
    alone: whether for an empty environment on the host's kind of machine, for which uv is needed.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    wanted = [os.path.abspath(text) if text.endswith(".whl") else text for text in wanted]
    for text in wanted:
        try:
            if not text.endswith(".whl") or not os.path.isfile(text):
                Requirement(text)
        except InvalidRequirement as error:
            why = "it does not exist" if text.endswith(".whl") else str(error).splitlines()[0]
            raise BadInput(f"{text!r} is not a requirement: {why}") from None
    python = str(host.python.get("executable", ""))
    uv = which("uv", os.pathsep.join([os.path.dirname(python), os.environ.get("PATH", os.defpath)]))
    folder = local_path(index)
    # An address may have a login, which others could read in a command.
    variables = dict.fromkeys(("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), index) if index and not folder else {}
    variables |= dict.fromkeys(("PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"), "") if index else {}
    common = ["--only-binary", ":all:", *(("--no-index", "--find-links", folder) if folder else ())]
    with tempfile.TemporaryDirectory(prefix="backends-") as scratch:
        listed, lock = f"{scratch}/wanted.txt", f"{scratch}/pylock.toml"
        _write(listed, wanted)
        if alone and not uv:
            raise Incomplete("requirements of another machine need uv, which is not installed", "install uv")
        if not uv:
            ask = [python, "-m", "pip", "install", "--dry-run", "--no-input", "--quiet", "--retries", "0"]
            report, _ = _output([*ask, *common, "--report", "-", "-r", listed], variables, scratch)
            note = "dependencies are resolved by pip, which may have downloaded whole wheels; uv does not"
            return Plan(list(_in_report(report)), {}, (note,))
        common += ["--no-progress"]
        ask = [uv, "pip", "compile", listed, "--format", "pylock.toml", "-o", lock]
        if alone:
            version = ".".join(str(host.python.get("version", "")).split(".")[:2])
            platform = f"{host.machine}-{_platforms(host)[0].removesuffix(f'_{host.machine}')}"
            common += ["--python-version", version, "--python-platform", platform]
            _output([*ask, *common], variables, scratch)
            return locked(host, lock)._replace(notes=("dependencies are resolved by uv",))
        common += ["--python", python]
        tried = [uv, "pip", "install", "--dry-run", "--break-system-packages", "-r", listed]
        _, plan = _output([*tried, *common], variables, scratch)
        plan = re.sub(r"(\S+)==\S+ \(from (\S+)\)", r"\1 @ \2", plan)  # as older ones of uv write it
        _write(listed, re.findall(r"^ [+~] (\S+==\S+|\S+ @ \S+)", plan, re.MULTILINE))
        _output([*ask, "--no-deps", *common], variables, scratch)
        return locked(host, lock)._replace(notes=("dependencies are resolved by uv",))


def _write(path: str, lines: Iterable[str]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join([*lines, ""]))


def _in_report(report: str) -> Iterator[File]:
    """Yield the wheels in what pip reports that it would install."""
    try:
        for item in msgspec.json.decode(report)["install"]:
            address = str(item["download_info"]["url"])
            yield unquote(urlsplit(address).path.rpartition("/")[2]), address
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError):
        raise Incomplete("pip's report of what it would install cannot be read") from None


def _output(command: Sequence[str], variables: dict[str, str], scratch: str) -> tuple[str, str]:
    """Return what uv or pip print on their standard output and error. Raises Incomplete if they fail."""
    limits = {"UV_HTTP_RETRIES": "0", "UV_HTTP_TIMEOUT": "20", "PIP_DEFAULT_TIMEOUT": "20"}
    with open(f"{scratch}/log", "w+b") as log:
        environment = {**os.environ, **limits, **variables, "NO_COLOR": "1"}
        outcome = outcome_of(command, _RESOLVING_SECONDS, environment, log.fileno())
        log.seek(0)
        text = log.read(4 << 20).decode(errors="replace")
    if outcome.status == 0:
        return outcome.output, text
    name = "pip" if "-m" in command[:2] else "uv"
    if "No module named pip" in text:
        raise Incomplete("requirements need uv or pip, and neither is installed", "install uv")
    lines = re.findall(r"^\s*(?:ERROR|error|cause): (.+)", text, re.MULTILINE)
    why = f"{name} takes longer than {_RESOLVING_SECONDS:g} s" if outcome.timed_out else "an unknown error"
    why = without_secrets(": ".join(lines[:2] if name == "uv" else lines[-1:])) or why
    raise Incomplete(f"{name} cannot resolve what is wanted: {why}")


# ---- the choice of a wheel ---------------------------------------------------------------------------


def best_wheel(host: Host, files: Iterable[File]) -> File | None:
    """Return the wheel that pip would choose for a host's interpreter, None if none fits."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    ranks = _ranks(host)
    ranked = []
    for name, address in files:
        try:
            _, _, build, tags = parse_wheel_filename(name)
        except InvalidWheelFilename:
            continue
        if fitting := [ranks[str(tag)] for tag in tags if str(tag) in ranks]:
            ranked.append((min(fitting), -build[0] if build else 0, name, address))
    return min(ranked)[2:] if ranked else None


@once_per_host
def _ranks(host: Host) -> dict[str, int]:
    """Return the tags that fit a host's interpreter, best first, by their rank."""
    from packaging.tags import compatible_tags, cpython_tags

    version = dotted_numbers(str(host.python.get("version", "")))[:2] or sys.version_info[:2]
    name, platforms = f"cp{version[0]}{version[1]}", _platforms(host)
    tags = [*cpython_tags(version, [name], platforms), *compatible_tags(version, name, platforms)]
    return {str(tag): rank for rank, tag in reversed([*enumerate(tags)])}


def _platforms(host: Host) -> list[str]:
    """Return the platforms of wheels that a host can use, best first."""
    name, _, version = str(host.system("libc") or "").partition(" ")
    major, minor = (*dotted_numbers(version), 0, 0)[:2]
    machine = host.machine
    if name == "musl":
        return [f"musllinux_1_{i}_{machine}" for i in range(minor, -1, -1)] + [f"linux_{machine}"]
    oldest = 5 if machine in ("x86_64", "i686") else 17
    platforms = []
    for i in range(minor if major == 2 else 0, oldest - 1, -1):
        platforms += [f"manylinux_2_{i}_{machine}"] + (
            [f"{_OLD_TAGS[i]}_{machine}"] if i in _OLD_TAGS else []
        )
    return [*platforms, f"linux_{machine}"]


def glibc_floor(name: str) -> int:
    """Return the glibc that a wheel needs, 28 for 2.28; 0 for one that needs none."""
    floors = [int(minor) for minor in re.findall(r"manylinux_2_(\d{1,3})_", name)]
    floors += [minor for minor, old in _OLD_TAGS.items() if f"{old}_" in name]
    return min(floors, default=0)


def _lacking(host: Host, name: str, files: Sequence[File], *, can_build: bool) -> Fault:
    """Return that no wheel of a package fits, and in what."""
    if can_build:
        return Fault("not-read", name, f"{name}: no wheel fits, and it would be built from source")
    listed = " ".join(file for file, _ in files)
    python, libc = host.python.get("version", ""), host.system("libc") or "an unknown C library"
    code = "wrong-python" if any(f"-{platform}" in listed for platform in _platforms(host)) else ""
    code = code or ("glibc-too-old" if f"linux_{host.machine}" in listed else "wrong-architecture")
    message = (
        f"{name}: none of {counted(len(files), 'wheel')} is for Python {python} on {host.machine}, {libc}"
    )
    return Fault(code, name, message)


_OLD_TAGS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_RESOLVING_SECONDS, _MOST_ALIKE = 300.0, 3
