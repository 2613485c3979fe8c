"""What would be installed: the wheels of a lock file, and those that a requirement would bring.

Dependencies are resolved by uv or pip, which the environment or PATH has, without installing or building
anything. Sources: PyPA, "pylock.toml Specification", "Platform compatibility tags", "Dependency specifiers";
uv's documentation, "Resolution" and "Locking and syncing", and the files that uv writes.
"""

import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

import msgspec

from mlbackends.base.errors import BadInput, Incomplete, counted
from mlbackends.base.mounts import which
from mlbackends.base.patterns import without_secrets
from mlbackends.base.quantities import dotted_numbers
from mlbackends.host.command import outcome_of
from mlbackends.host.files import named_bytes
from mlbackends.host.host import Host, once_per_host
from mlbackends.host.python.requirements import holds, marker_environment
from mlbackends.loading.web import local_path
from mlbackends.model.loading import Fault, PackageLoading, Verdict

#: A wheel's name and its address.
File = tuple[str, str]


class Plan(NamedTuple):
    """Wheels that would be installed. lacking: packages without a wheel that fits. notes: what to know."""

    files: list[File]
    lacking: Sequence[PackageLoading] = ()
    notes: tuple[str, ...] = ()


# ---- locks -----------------------------------------------------------------------------------------


def locked(host: Host, path: str) -> Plan:
    """Return what a pylock.toml or uv.lock installs, without groups and extras. Raises BadInput."""
    files, lacking = [], []
    text = named_bytes(path, 64 << 20, "lock file")
    try:
        data = tomllib.loads(text.decode())
        for package in _of_uv(host, data) if "package" in data else _of_pylock(host, data):
            wheels = _wheels(package, f"file://{os.path.abspath(path)}")
            if best := best_wheel(host, wheels):
                files.append(best)
            else:
                lacking.append(_lacking(host, package, wheels))
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise BadInput(f"{path} is not a valid pylock.toml or uv.lock: {why}") from None
    return Plan(files, lacking)


def _of_pylock(host: Host, data: dict[str, Any]) -> list[dict[str, Any]]:
    groups = {"extras": (), "dependency_groups": tuple(data.get("default-groups", ()))}
    environment = marker_environment(host) | groups
    return [row for row in data["packages"] if holds(row.get("marker", ""), environment) is not False]


def _of_uv(host: Host, data: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the packages that the members of a uv.lock need, the members themselves left out."""
    environment = marker_environment(host)
    members = [row for row in data["package"] if {"editable", "virtual"} & set(row["source"])]
    todo = [(row, "") for row in members]
    seen = {(id(row), "") for row in members}
    for package, extra in todo:  # grows as it is walked
        if not extra and package not in members:
            yield package
        needs = package.get("optional-dependencies", {}).get(extra, ()) if extra else ()
        for need in needs if extra else package.get("dependencies", ()):
            if holds(need.get("marker", ""), environment) is False:
                continue
            for row in data["package"]:
                # Version and source are stated where there are several.
                if all(need.get(key, row.get(key)) == row.get(key) for key in ("name", "version", "source")):
                    more = [(row, name) for name in ("", *need.get("extra", ()))]
                    todo += [(row, name) for row, name in more if (id(row), name) not in seen]
                    seen |= {(id(row), name) for row, name in more}


def _wheels(package: dict[str, Any], base: str) -> list[File]:
    """Return the wheels of a package in a lock, as names and addresses with the sha256 after "#"."""
    source = package.get("source", {})
    folder = local_path(source.get("registry", "https://"))
    files = []
    for wheel in (*package.get("wheels", ()), *([package["archive"]] if "archive" in package else [])):
        # Below uv's registry or its source; those of the specification relative to the lock.
        at = wheel.get("url") or wheel.get("path") or source.get("url") or source.get("path")
        address = urljoin(base, os.path.join(folder, at or wheel["filename"]))
        name = wheel.get("name") or unquote(urlsplit(address).path.rpartition("/")[2])
        digest = re.search(r"sha256\W+([0-9a-f]{64})", str(wheel))
        if name.endswith(".whl"):
            files.append((name, f"{address.partition('#')[0]}#sha256={digest[1] if digest else ''}"))
    return files


# ---- requirements ----------------------------------------------------------------------------------


def if_installed(host: Host, wanted: Sequence[str], index: str, *, alone: bool = False) -> Plan:
    """Return what installing requirements would bring into an environment. Raises BadInput and Incomplete.

    index: the address of a package index, or a folder of wheels; "" for what uv or pip are configured for.
    alone: whether for an empty environment on the host's kind of machine, for which uv is needed.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    for text in wanted:
        try:
            text.endswith(".whl") or Requirement(text)
        except InvalidRequirement as error:
            raise BadInput(f"{text!r} is not a requirement: {str(error).splitlines()[0]}") from None
    wanted = [
        os.path.abspath(text) if text.endswith(".whl") and ":/" not in text else text for text in wanted
    ]
    python = str(host.python.get("executable", ""))
    uv = which("uv", os.pathsep.join([os.path.dirname(python), os.environ.get("PATH", os.defpath)]))
    folder = local_path(index)
    # An address may have a login, which others could read in a command.
    variables = dict.fromkeys(("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), index) if index and not folder else {}
    variables |= dict.fromkeys(("PIP_EXTRA_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"), "") if index else {}
    common = ["--only-binary", ":all:", *(("--no-index", "--find-links", folder) if folder else ())]
    with tempfile.TemporaryDirectory(prefix="backends-") as scratch:
        listed, lock = f"{scratch}/wanted.txt", f"{scratch}/pylock.toml"

        def output(*command: str) -> tuple[str, str]:
            with open(listed, "w", encoding="utf-8") as file:
                file.write("\n".join([*wanted, ""]))
            return _output([*command, *common], variables, scratch)

        if not uv and alone:
            raise Incomplete("requirements of another machine need uv, which is not installed", "install uv")
        if not uv:
            ask = [python, "-m", "pip", "install", "--dry-run", "--no-input", "--quiet", "--retries", "0"]
            report, _ = output(*ask, "--report", "-", "-r", listed)
            note = "dependencies are resolved by pip, which may have downloaded whole wheels; uv does not"
            urls = [urlsplit(row["download_info"]["url"]) for row in msgspec.json.decode(report)["install"]]
            files = [(unquote(url.path.rpartition("/")[2]), url.geturl()) for url in urls]
            return Plan(files, notes=(note,))
        common.append("--no-progress")
        ask = [uv, "pip", "compile", listed, "--format", "pylock.toml", "-o", lock]
        if alone:
            version = ".".join(str(host.python.get("version", "")).split(".")[:2])
            platform = f"{host.machine}-{_platforms(host)[0].removesuffix(f'_{host.machine}')}"
            output(*ask, "--python-version", version, "--python-platform", platform)
        else:
            common += ["--python", python]
            _, plan = output(uv, "pip", "install", "--dry-run", "--break-system-packages", "-r", listed)
            plan = re.sub(r"(\S+)==\S+ \(from (\S+)\)", r"\1 @ \2", plan)  # as older ones of uv write it
            wanted = re.findall(r"^ [+~] (\S+==\S+|\S+ @ \S+)", plan, re.MULTILINE)
            output(*ask, "--no-deps")
        return locked(host, lock)._replace(notes=("dependencies are resolved by uv",))


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

    ranks, ranked = _ranks(host), []
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
    minor = (*dotted_numbers(version), 0, 0)[1]
    kinds = [f"musllinux_1_{i}" for i in range(minor, -1, -1)]
    if name != "musl":
        kinds = [kind for i in range(minor, 4, -1) for kind in (f"manylinux_2_{i}", _OLD_TAGS.get(i, ""))]
    return [f"{kind}_{host.machine}" for kind in (*kinds, "linux") if kind]


def _lacking(host: Host, package: dict[str, Any], files: Sequence[File]) -> PackageLoading:
    """Return that no wheel of a package fits, and in what."""
    listed = " ".join(name for name, _ in files)
    name, version = package["name"], package.get("version", "")
    python, libc = host.python.get("version", ""), host.system("libc") or "an unknown C library"
    message = f"none of {counted(len(files), 'wheel')} is for Python {python} on {host.machine}, {libc}"
    if "sdist" in package or not files:
        code, message = "not-read", "no wheel fits, and it would be built from source"
    elif any(f"-{platform}" in listed for platform in _platforms(host)):
        code = "wrong-python"
    else:
        code = "glibc-too-old" if f"linux_{host.machine}" in listed else "wrong-architecture"
    named = f"{name} {version}".strip()
    verdict = Verdict.UNKNOWN if code == "not-read" else Verdict.FAILS
    return PackageLoading(name, version, verdict, faults=(Fault(code, named, f"{named}: {message}"),))


_OLD_TAGS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
_RESOLVING_SECONDS = 300.0
