"""Check and measure our attention on an NVIDIA GPU, and write the results to RESULTS.md.

    tests/gpu/run                                   this tree, with what it needs in a temporary folder
    tests/gpu/run --from mlbackends-0.1.0-....whl   a wheel, or any requirement that pip accepts
    tests/gpu/run --here                            what this Python has, without installing anything
    tests/gpu/run --download FOLDER                 only fetch the wheels, on a machine with a network
    tests/gpu/run --wheels FOLDER                   without a network: from the wheels in FOLDER alone

It needs only Python 3.11; without pip, wheels are unpacked. torch and others are compared if this Python has
them; --python PEER=EXE names the environment of another library. Each part has a time limit and fails alone.
Each result is written as soon as it is measured, and a run that ended early is resumed by the next one, for
the same device and commit (--fresh starts again). The GPU's clocks and power are recorded during each part.
An incomplete run, and --quick, do not replace an older complete one. No setting of the GPU is changed.

Exit codes: 0 if every check passed, 1 if one failed, 2 without a GPU, 3 if nothing could be set up (then
nothing is written), 130 if it was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections import Counter
from contextlib import contextmanager, suppress
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree as ET

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NEEDED = ("msgspec", "click", "psutil", "packaging", "numpy", "cuda.core")
#: Wheels with the libraries that we call, and a file of each; copies that torch installed serve too.
LIBRARIES = {
    "nvidia-cuda-nvrtc": "nvidia/cu13/lib/libnvrtc.so.13",
    "nvidia-cudnn-cu13": "nvidia/cudnn/lib/libcudnn.so.9",
    "nvidia-cudnn-frontend": "cudnn",
}
GROUPS = ("small", "forward", "decode", "efficient", "backward")
#: The time limits of the parts, and of one timed problem, if as much is left of the whole.
SECONDS = {"set-up": 150, "check": 120, "tests": 120, "problem": 75}
_LEAST_SECONDS = 5.0
PACKAGES = (
    *("mlbackends", "torch", "cuda-core", "nvidia-cuda-nvrtc"),
    *("nvidia-cudnn-cu13", "nvidia-cudnn-frontend", "flash-attn", "flash-attn-4", "xformers"),
    *("flashinfer-python", "jax"),
)
#: Goals: group, start of our backend's name, compared with what, description, value.
WANTED: tuple[tuple[str, str, str, str, float], ...] = (
    ("forward", "cudnn", "torch_cudnn", "of torch's cuDNN", 0.97),
    ("backward", "cudnn", "torch_cudnn", "of torch's cuDNN", 0.97),
    ("backward", "efficient_cuda", "torch_efficient", "of torch's efficient", 1.0),
    ("decode", "", "memory", "of the measured bandwidth", 0.8),
    ("efficient", "efficient_cuda", "torch_efficient", "of torch's efficient", 1.0),
    ("small", "", "host", "microseconds on the host, at most", 15.0),
)


HOW = {True: "passed", False: "FAILED", None: "done"}


class Part(NamedTuple):
    """The result of one part. good: whether all checks passed; None without checks, or if it did not run."""

    name: str
    good: bool | None
    text: str


class Ended(NamedTuple):
    """How a program ended: its exit code, None if it timed out, and its output."""

    code: int | None
    out: str
    errors: str

    @property
    def why(self) -> str:
        """Why there is no result, in one line."""
        lines = [line for line in self.errors.splitlines() if line.strip()]
        lines = [line for line in lines if line.lower().startswith("error")] or lines
        how = "it was stopped after its time limit" if self.code is None else f"exit code {self.code}"
        return f"{how}: {lines[-1].strip()[:300]}" if lines else how


def index_of(device: str) -> int:
    """Return the index of a device, as CUDA counts. Raises ValueError for what is not a device."""
    if not (match := re.fullmatch(r"cuda(?::([0-9]{1,3}))?", device)):
        raise ValueError(f"{device!r} is neither cuda nor cuda:N")
    return int(match[1] or 0)


def why_no_device(device: str) -> str:
    """Return why there is no such device, "" if there is one, as a separate process finds it."""
    program = (
        "import ctypes, os, sys\n"
        "try: cuda = ctypes.CDLL('nvcuda.dll' if os.name == 'nt' else 'libcuda.so.1')\n"
        "except OSError as error: sys.exit(f'the driver cannot be opened: {error}')\n"
        "status, count = cuda.cuInit(0), ctypes.c_int()\n"
        "if status: sys.exit(f'cuInit returned {status}')\n"
        "cuda.cuDeviceGetCount(ctypes.byref(count))\n"
        f"if count.value <= {index_of(device)}: sys.exit(f'the driver shows {{count.value}}')\n"
    )
    ended = run([sys.executable, "-c", program], 60)
    return "" if ended.code == 0 else ended.errors.strip() or ended.why


def run(command: Sequence[str], seconds: float, **variables: str) -> Ended:
    """Run a program, and stop it and its children after its time limit."""
    environment = {**os.environ, **variables}
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=max(seconds, 1))
    except subprocess.TimeoutExpired:
        _end(process)
        return Ended(None, *process.communicate())
    except BaseException:
        _end(process)
        raise
    return Ended(process.returncode, out, errors)


def _end(process: subprocess.Popen[str]) -> None:
    """Let a program end its children, and kill it if it does not."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(5)
            return


def requirement(source: str) -> str:
    """Return pip's requirement for a file or a requirement, with the extra for CUDA."""
    if not os.path.exists(source) and ("[" in source or " @ " in source):
        return source
    if os.path.exists(source):
        return f"{os.path.abspath(source)}[cuda]"
    return re.sub(r"^[\w.-]+", r"\g<0>[cuda]", source)


# ---- the environment ------------------------------------------------------------------------


#: What the tests of this folder import.
FOR_TESTS = ("pytest", "jsonschema", "hypothesis")


def requirements() -> list[str]:
    """Return what this tree needs on a GPU, from its project file."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["cuda"], *FOR_TESTS]


class Environment:
    """This Python, and a folder with the packages that everything needs."""

    def __init__(self, options: argparse.Namespace, folder: Path, end: float) -> None:
        self.options, self.folder, self.end = options, folder, end
        self.python, self.target = sys.executable, folder / "packages"
        self.variables: dict[str, str] = {}
        self.notes: list[str] = []

    def set_up(self, seconds: float) -> Part:
        """Install the package and its libraries; if that fails, use what is installed already."""
        end, source = time.monotonic() + seconds, self.options.source
        trees = [] if source else [str(ROOT / name) for name in ("core", "cli", "probes", "kernels")]
        before = os.environ.get("PYTHONPATH", "")
        path = os.pathsep.join(filter(None, [str(self.target), *trees, before]))
        self.variables["PYTHONPATH"] = path
        if not self.options.here:
            what = [requirement(source), *FOR_TESTS] if source else requirements()
            if not self._install(end, *what) and source:
                return Part("set-up", False, "\n".join(f"- {note}" for note in self.notes))
            for name, file in LIBRARIES.items():
                if not self._has(file):
                    self._install(end, "--no-deps", name)
        missing = [name for name in NEEDED if not self._imports(name)]
        lines = [f"- {note}" for note in self.notes]
        if self._imports("mlbackends"):
            lines += [f"- {name} cannot be imported" for name in missing]
        else:
            missing, lines = ["mlbackends"], [*lines, "- mlbackends cannot be imported"]
        basis = {"mlbackends", "msgspec", "click", "psutil", "packaging", "numpy"}
        return Part("set-up", False if basis & set(missing) else None, "\n".join(lines))

    def _install(self, end: float, *what: str) -> bool:
        """Install into the folder: by pip, else by uv, else by unpacking the given wheels."""
        wheels = self.options.wheels
        command = [self.python, "-m", "pip", "install", "-q", "--retries", "1", "--timeout", "10"]
        if not self._imports("pip"):
            if not (uv := shutil.which("uv")):
                return self._unpack(what)
            command = [uv, "pip", "install", "-q", "--python", self.python]
        command += ["--no-index", "--find-links", wheels] if wheels else []
        # A numpy that torch was built for is not replaced by another.
        pins = self.folder / "pins.txt"
        pins.write_text(numpy_pin(), encoding="utf-8")
        command += ["--target", str(self.target), "--constraint", str(pins)]
        ended = run([*command, *what], end - time.monotonic())
        if ended.code != 0:
            self.notes.append(f"pip install {' '.join(what)}: {ended.why}")
        return ended.code == 0

    def _unpack(self, what: Sequence[str]) -> bool:
        """Unpack every wheel of the folder that this Python can import, once."""
        if not self.options.wheels:
            self.notes.append(f"{' '.join(what)} cannot be installed: no pip, no uv and no --wheels")
            return False
        if not self.target.exists():
            for wheel in sorted(Path(self.options.wheels).glob("*.whl")):
                with zipfile.ZipFile(wheel) as file:
                    file.extractall(self.target)
        return True

    def _imports(self, name: str) -> bool:
        """Return whether a module can be found; its parent packages are imported for that."""
        program = f"from importlib.util import find_spec; raise SystemExit(not find_spec({name!r}))"
        return run([self.python, "-c", program], 60, **self.variables).code == 0

    def _has(self, file: str) -> bool:
        program = (
            f"import os, sys; raise SystemExit(not any(os.path.exists(os.path.join(p, {file!r}))"
            " for p in sys.path))"
        )
        return run([self.python, "-c", program], 60, **self.variables).code == 0

    def backends(self, seconds: float, *words: str) -> Ended:
        """Run `backends WORDS`, no longer than is left of the whole."""
        seconds = min(seconds, self.end - time.monotonic())
        return run([self.python, "-m", "mlbackends", *words], seconds, **self.variables)


def numpy_pin() -> str:
    """Return a line of constraints for pip that keeps this Python's numpy, "" without one."""
    try:
        return f"numpy=={metadata.version('numpy')}\n"
    except metadata.PackageNotFoundError:
        return ""


class Watch:
    """The clocks, power and temperature of the GPU while a part runs, by nvidia-smi."""

    FIELDS = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")

    def __init__(self, device: str) -> None:
        self.lines: list[str] = []
        query = f"--query-gpu={','.join(self.FIELDS)}"
        words = ["nvidia-smi", "-i", str(index_of(device)), query, "--format=csv,noheader,nounits"]
        self.command = [*words, "-lms", "500"]

    @contextmanager
    def during(self, part: str) -> Iterator[None]:
        """Record while the block runs."""
        try:
            process = subprocess.Popen(
                self.command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        except OSError:  # no nvidia-smi: nothing is recorded
            yield
            return
        try:
            yield
        finally:
            process.kill()
            samples = process.communicate()[0].splitlines()
            if text := watched(samples):
                self.lines.append(f"- {part}: {text}")


def watched(samples: Sequence[str]) -> str:
    """Return the range of each number in lines of nvidia-smi, "" without any."""
    rows = []
    for line in samples:
        with suppress(ValueError):
            rows.append([float(cell) for cell in line.split(",")])
    names, units = ("SM clock", "memory clock", "power", "temperature"), ("MHz", "MHz", "W", "°C")
    columns = list(zip(*(row for row in rows if len(row) == len(names)), strict=True))
    return ", ".join(
        f"{name} {min(column):.0f} to {max(column):.0f} {unit}"
        for name, unit, column in zip(names, units, columns, strict=False)
    )


# ---- the parts ------------------------------------------------------------------------------


def commit_of_tests() -> str:
    """Return the commit of this checkout, "" where this is none."""
    return run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"], 10).out.strip()


def machine(environment: Environment) -> tuple[str, str]:
    """Return the name of the device, and a Markdown table of it and its software."""
    ended = environment.backends(90, "info", "cuda_driver", "nvidia", "--format", "json")
    probes: dict[str, Any] = {}
    with suppress(ValueError, KeyError):
        probes = json.loads(ended.out)["probes"]
    probe, nvidia = probes.get("cuda_driver", {}), probes.get("nvidia", {})
    releases = (report.get("facts", {}).get("driver_release") for report in (nvidia, probe))
    devices = probe.get("devices") or [{}]
    measured = dict(enumerate(devices)).get(index_of(environment.options.device), {})
    program = (
        "import importlib.metadata as m\n"
        f"for name in {PACKAGES!r}:\n"
        "    try: print(name, m.version(name))\n"
        "    except m.PackageNotFoundError: pass"
    )
    packages = run([environment.python, "-c", program], 30, **environment.variables).out
    commit, options = commit_of_tests(), environment.options
    is_tree = not (options.here or options.source)
    names = Counter(entry.get("name") or "not known" for entry in devices)
    rows = {
        "device": f"{measured.get('name', 'not known')} ({options.device})",
        "devices": ", ".join(f"{count} × {name}" for name, count in names.items()),
        "compute capability": measured.get("capability", ""),
        "driver": next(filter(None, releases), "not known"),
        "CUDA of the driver": probe.get("version", ""),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "measured": options.source or ("what this Python has" if options.here else "this tree"),
        f"commit{'' if is_tree else ' of the tests'}": commit or "unknown: this is not a checkout",
        "Python": f"{platform.python_version()}, {platform.system()} {platform.machine()}",
        "packages": ", ".join(packages.split("\n")).strip(", "),
    }
    table = ["| | |", "| --- | --- |"]
    table += [f"| {name} | {value} |" for name, value in rows.items() if value]
    return str(measured.get("name") or "an unknown device"), "\n".join(table)


def checked(environment: Environment, seconds: float) -> Part:
    """Compare each of our backends with float64."""
    path = environment.folder / "check.json"
    problems = HERE / "problems" / f"{'quick' if environment.options.quick else 'check'}.txt"
    words = ("--problems", str(problems), "--device", environment.options.device, "--rounds", "0")
    ended = environment.backends(seconds, "sdpa", "check", *words, "--format", "json", "--output", str(path))
    if not path.exists():
        return Part("check", False, f"It gave no result: {ended.why}")
    results = json.loads(path.read_text())["problems"]
    counts: dict[str, Counter[str]] = {}
    wrong: list[str] = []
    for problem in results:
        if problem.get("failure"):
            wrong.append(f"- `{problem['text']}`: {problem['failure']}")
        for result in problem["results"]:
            how = outcome(result)
            counts.setdefault(result["backend"], Counter())[how] += 1
            if how in ("wrong", "failed"):
                reasons = "; ".join(reason["message"] for reason in result.get("reasons", ()))
                why = reasons or "; ".join(errors_of(result))
                wrong.append(f"- `{result['backend']}`, `{problem['text']}`: {why}")
    lines = [
        f"{len(results)} problems compared with float64.",
        "",
        *("| backend | right | wrong | failed | refused |", "| --- | ---: | ---: | ---: | ---: |"),
        *(
            f"| {name} | {count['right']} | {count['wrong']} | {count['failed']} | {count['refused']} |"
            for name, count in counts.items()
        ),
        "",
        *wrong,
    ]
    good = any(count["right"] for count in counts.values()) and not wrong and ended.code == 0
    return Part("check", good, "\n".join(lines).strip())


def outcome(result: dict[str, Any]) -> str:
    """Return how a result of a check ended: right, wrong, failed or refused."""
    if result["ended"] != "ran":
        return "refused" if result["ended"] == "cannot" else "failed"
    return "wrong" if errors_of(result) else "right"


def errors_of(result: dict[str, Any]) -> list[str]:
    """Return descriptions of what is too far from float64: the result, and gradients by name."""
    every = {"result": result.get("errors"), **result.get("gradients", {})}
    wrong = []
    for name, errors in every.items():
        if errors and errors.get("misplaced"):
            wrong.append(f"{name}: {errors['misplaced']} elements are wrongly NaN, infinite or finite")
        elif errors and errors["largest_absolute"] > errors["largest_allowed"]:
            error, allowed = errors["largest_absolute"], errors["largest_allowed"]
            wrong.append(f"{name}: the largest error is {error:.2g}, the limit is {allowed:.2g}")
    return wrong


def tested(environment: Environment, seconds: float) -> Part:
    """Run the tests of this folder."""
    path = environment.folder / "tests.xml"
    command = [environment.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE)]
    command += ["-m", "slow or not slow", f"--junitxml={path}", "-o", "filterwarnings=default"]
    # One process: the tests share a device. pytest-xdist is not needed then.
    command += ["-o", "addopts=--import-mode=importlib"]
    if environment.options.quick:
        command += ["-k", "out_of_memory"]
    seconds = min(seconds, environment.end - time.monotonic())
    ended = run(command, seconds, **environment.variables)
    if not path.exists():
        return Part("tests", False, f"pytest gave no result: {ended.why}")
    cases = list(ET.parse(path).iter("testcase"))
    lines, counts = [], Counter[str]()
    skipped: Counter[str] = Counter()
    for case in cases:
        kinds = {child.tag: child.get("message", "") for child in case}
        how = next((kind for kind in ("failure", "error", "skipped") if kind in kinds), "passed")
        counts[how] += 1
        if how == "skipped":
            skipped[kinds[how]] += 1
        elif how != "passed":
            lines.append(f"- {case.get('name')}: {kinds[how].splitlines()[0][:300]}")
    lines += [f"- {number} skipped: {why}" for why, number in skipped.items()]
    total = ", ".join(f"{number} {how}" for how, number in counts.items())
    good = bool(counts["passed"]) and not (counts["failure"] or counts["error"])
    return Part("tests", good, "\n".join([f"{total}.", "", *lines]).strip())


class Group:
    """The problems of a file, timed one after another, each with every peer."""

    def __init__(self, environment: Environment, name: str) -> None:
        self.environment, self.name = environment, name
        file = "quick" if environment.options.quick else name
        lines = (HERE / "problems" / f"{file}.txt").read_text(encoding="utf-8").splitlines()
        self.left = [line for line in lines if line and not line.startswith("#")]
        self.record: dict[str, Any] = {}
        self.lines: list[str] = []

    def measure(self, seconds: float) -> Part:
        """Time the next problem, and return the results of the group so far."""
        environment, options = self.environment, self.environment.options
        line = self.left.pop(0)
        path = environment.folder / "problem.json"
        path.unlink(missing_ok=True)
        words = [*shlex.split(line), "--device", options.device, "--peers", "--timeout", "60"]
        words += ["--rounds", "1" if options.quick else "5"]
        words += [word for python in options.pythons for word in ("--python", python)]
        ended = environment.backends(
            seconds, "sdpa", "bench", *words, "--format", "json", "--output", str(path)
        )
        if not path.exists():
            self.lines.append(f"- `{line}`: no result: {ended.why}")
        else:
            record = json.loads(path.read_text(encoding="utf-8"))
            before = self.record.get("problems", [])
            self.record = {**record, "problems": [*before, *record["problems"]]}
            self.lines += [
                f"- `{result['backend']}` {outcome(result)}, `{problem['checked']['text']}`"
                for problem in record["problems"]
                for result in problem["checked"]["results"]
                if outcome(result) in ("wrong", "failed")
            ]
        every = self.record.get("problems", ())
        ran = (result for problem in every for result in problem["checked"]["results"])
        good = any(outcome(result) == "right" for result in ran) or None
        return Part(self.name, good if not self.lines else False, self._text())

    def _text(self) -> str:
        if not self.record:
            return "\n".join(self.lines)
        path = self.environment.folder / f"{self.name}.json"
        path.write_text(json.dumps(self.record), encoding="utf-8")
        words = ("sdpa", "bench", "--from", str(path), "--format", "markdown")
        shown = self.environment.backends(60, *words).out.strip()
        refused = {
            f"- `{result['backend']}` did not run: {result['reasons'][0]['message']}": None
            for problem in self.record["problems"]
            for result in problem["checked"]["results"]
            if outcome(result) == "refused" and result["reasons"]
        }
        return "\n".join([shown, "", *self.lines, *refused]).strip()


def wanted(records: Mapping[str, dict[str, Any]]) -> str:
    """Return a Markdown table of goals and measured numbers."""
    lines = ["| goal | measured | problem |", "| --- | ---: | --- |"]
    for group, ours, beside, words, least in WANTED:
        for problem in records.get(group, {}).get("problems", ()):
            measured = number(problem, ours, beside)
            if measured is not None:
                name = f"{ours}: " if ours else ""
                text = problem["checked"]["text"]
                lines.append(f"| {name}{least:g} {words} | {measured:.3g} | `{text}` |")
    return "\n".join(lines) if len(lines) > 2 else "None could be measured."


def number(problem: dict[str, Any], ours: str, beside: str) -> float | None:
    """Return one number of a problem: our best backend's, alone or relative to another's."""
    timed = {
        result["backend"]: result["timing"]
        for result in problem["checked"]["results"]
        if result.get("timing") and outcome(result) == "right"
    }
    peers = {result["backend"] for result in problem["checked"]["results"] if result.get("peer")}
    own = [result for name, result in timed.items() if name.startswith(ours) and name not in peers]
    if not own:
        return None
    if beside == "host":
        times = [timing["host_seconds"] for timing in own if timing.get("host_seconds")]
        return min(times) * 1e6 if times else None
    best = min(own, key=lambda timing: float(timing["median_seconds"]))
    if not beside:
        return float(best["gflops"]) / 1e3
    seconds = float(best["median_seconds"])
    if beside == "memory":
        rate = (problem["checked"].get("speeds") or {}).get("bandwidth_bytes_per_second")
        return problem["least_bytes"] / seconds / rate if rate else None
    return float(timed[beside]["median_seconds"]) / seconds if beside in timed else None


# ---- the file -------------------------------------------------------------------------------


INTRODUCTION = """# What has run on a GPU

`tests/gpu/run` writes this file: a section for each kind of device, with its latest complete run.
An incomplete run, and a rehearsal (`--quick`), have separate sections.

    tests/gpu/run                             # checks and measures this tree in under ten minutes
    tests/gpu/run --from mlbackends==0.1.0    # the same for a wheel; see --help

Results of other devices are welcome: send the section.
"""


def write(path: Path, title: str, text: str, *, ended: bool = True) -> None:
    """Write the section of a device into the file, in place of an older one, atomically.

    An incomplete run has a separate section, until a run is complete.
    """
    older = f"{title}, not to the end"
    title = title if ended else older
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    sections = {
        part.partition("\n")[0].strip(): part.partition("\n")[2].strip()
        for part in re.split(r"^## ", before, flags=re.MULTILINE)[1:]
    }
    others = {k: v for k, v in sections.items() if k not in (title, older)}
    sections = {title: text.strip(), **others}
    parts = [f"## {name}\n\n{body}\n" for name, body in sections.items()]
    made = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        made.write_text("\n".join([INTRODUCTION, *parts]), encoding="utf-8")
        made.replace(path)
    finally:
        made.unlink(missing_ok=True)


def page(table: str, parts: Sequence[Part], left: Sequence[str], clocks: Sequence[str] = ()) -> str:
    """Return a section: the machine, how each part ended, and its results."""
    ran = [part for part in parts if part.name != "goals"]
    summary = ", ".join(f"{part.name}: {HOW[part.good]}" for part in ran)
    lines = [table, "", f"{summary}."]
    if left:
        lines += ["", f"Not run to the end: {', '.join(left)}."]
    for part in parts:
        if part.text:
            lines += ["", f"### {part.name}", "", part.text]
    if clocks:
        lines += ["", "### clocks and power", "", *clocks]
    return "\n".join(lines)


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Return the options."""
    shape = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser("tests/gpu/run", description=__doc__, formatter_class=shape)
    where = options.add_mutually_exclusive_group()
    where.add_argument("--from", dest="source", default="", help="install this requirement, not this tree")
    where.add_argument("--here", action="store_true", help="install nothing: use this Python's packages")
    options.add_argument("--wheels", default="", help="a folder with all wheels; no network is used")
    options.add_argument("--download", default="", help="fetch the wheels for this Python, and end")
    options.add_argument("--fresh", action="store_true", help="do not resume an earlier run")
    options.add_argument(
        "--python",
        dest="pythons",
        action="append",
        default=[],
        metavar="PEER=EXE",
        help="the Python of a peer's environment, such as xformers=venv/bin/python; repeatable",
    )
    options.add_argument("--device", default="cuda", help="cuda or cuda:N")
    options.add_argument("--minutes", type=float, default=9.5, help="for all parts together")
    options.add_argument("--quick", action="store_true", help="one small problem a part: a rehearsal")
    results = HERE / "RESULTS.md"
    options.add_argument("--output", type=Path, default=results, help="the file; else RESULTS.md")
    chosen = options.parse_args(given)
    try:
        index_of(chosen.device)
    except ValueError as error:
        options.error(f"argument --device: {error}")
    if not chosen.minutes > 0:
        options.error(f"argument --minutes: {chosen.minutes:g} is not a duration")
    return chosen


class State:
    """What a run has so far, in a file next to the results until it is complete."""

    def __init__(self, options: argparse.Namespace, title: str, commit: str) -> None:
        self.path = options.output.with_name(f"{options.output.name}.state")
        self.run = [title, commit, options.quick, options.source, options.device]
        self.data: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            data = json.loads(self.path.read_text(encoding="utf-8"))
            self.data = data if data["run"] == self.run and not options.fresh else {}

    def restore(self, groups: Mapping[str, Group]) -> list[Part]:
        """Give the groups what they measured already, and return the parts that ended."""
        for name, (left, record, lines) in self.data.get("groups", {}).items():
            groups[name].left, groups[name].record, groups[name].lines = left, record, lines
        return [Part(*part) for part in self.data.get("parts", ())]

    def save(self, parts: Sequence[Part], groups: Mapping[str, Group], clocks: list[str]) -> None:
        """Write what there is, atomically."""
        whole = {name: [group.left, group.record, group.lines] for name, group in groups.items()}
        data = {"run": self.run, "parts": parts, "groups": whole, "clocks": clocks}
        made = self.path.with_name(f"{self.path.name}.{os.getpid()}")
        made.write_text(json.dumps(data), encoding="utf-8")
        made.replace(self.path)


def main(given: Sequence[str]) -> int:
    """Run all parts, and return the exit code."""
    options = arguments(given)
    if options.download:
        what = [requirement(options.source), *FOR_TESTS] if options.source else requirements()
        command = [sys.executable, "-m", "pip", "download", "--dest", options.download]
        command.append("--only-binary=:all:")
        # The frontend's requirements are for its own kernels, and large.
        frontend = subprocess.call([*command, "--no-deps", "nvidia-cudnn-frontend"])
        return frontend or subprocess.call([*command, *what])
    if why := why_no_device(options.device):
        which = "no CUDA device" if options.device == "cuda" else f"no device {options.device}"
        print(f"tests/gpu/run: {which}: {why}; {options.output} stays as it is", file=sys.stderr)
        return 2
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory(prefix="backends-gpu-", ignore_cleanup_errors=True) as folder:
        environment = Environment(options, Path(folder), end)
        first = _noted(environment.set_up(min(SECONDS["set-up"], end - time.monotonic())))
        if first.good is False:
            print(first.text, file=sys.stderr)
            return 3
        title, table = machine(environment)
        title += ", a rehearsal" if options.quick else ""
        groups = {name: Group(environment, name) for name in GROUPS}
        state = State(options, title, commit_of_tests())
        parts = {first.name: first, **{part.name: part for part in state.restore(groups)}}
        watch = Watch(options.device)
        watch.lines = state.data.get("clocks", [])
        once = {"check": partial(checked, environment), "tests": partial(tested, environment)}
        steps: list[tuple[str, Callable[[float], Part]]] = [
            *((name, step) for name, step in once.items() if name not in parts),
            *((name, group.measure) for name, group in groups.items() for _ in group.left),
        ]
        has_run = False
        try:
            while True:
                records = {name: group.record for name, group in groups.items() if group.record}
                numbers = [Part("goals", None, wanted(records))] if records else []
                left = dict.fromkeys(name for name, _ in steps)
                text = page(table, [*parts.values(), *numbers], [*left], watch.lines)
                write(options.output, title, text, ended=not left)
                if not steps:
                    state.path.unlink(missing_ok=True)
                    break
                state.save([part for part in parts.values() if part.name != "set-up"], groups, watch.lines)
                seconds, limit = (
                    end - time.monotonic(),
                    SECONDS.get(steps[0][0], SECONDS["problem"]),
                )
                # A part that might not end in time is left to the next run.
                if seconds < (limit if has_run else _LEAST_SECONDS):
                    print(
                        f"not run to the end: {', '.join(left)}; run it again to resume",
                        file=sys.stderr,
                    )
                    break
                name, step = steps.pop(0)
                with watch.during(name):
                    parts[name] = _noted(step(min(limit, seconds)))
                has_run = True
        finally:  # stopped or not
            print(f"written to {options.output}", file=sys.stderr)
    return 1 if any(part.good is False for part in parts.values()) else 0


def _noted(part: Part) -> Part:
    print(f"{time.strftime('%H:%M:%S')} {part.name}: {HOW[part.good]}", file=sys.stderr, flush=True)
    return part


if __name__ == "__main__":
    for number_ in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number_, lambda *_: sys.exit(130))  # programs that run are ended too
    sys.exit(main(sys.argv[1:]))
