"""Run the tests on other systems: other processors under qemu, Windows under Wine, other Pythons.

    .ci/systems [--list] [--cache FOLDER] [--tests PART] [JOB...]

Each job of jobs.toml gets its system, installs our wheel there, runs checks.py and tests, and writes
results/JOB.json. It fails where a check or an unlisted test fails, and where a line of
not_here.toml is stale. A job whose system cannot be had is skipped, and its results stay;
one that was named must run.
With --tests it runs a part alone, and the results of the others stay; each bears its commit.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from not_here import junit_cases, lines_for, matches
from preparation import PREPARE, System, Unavailable, call, key, zig_python

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[1]
RESULTS = HERE / "results"
#: Seconds for one folder of tests, and for one test of it.
LIMIT, TEST_LIMIT = 5400, 600


def main() -> int:
    jobs = tomllib.loads((HERE / "jobs.toml").read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(prog=".ci/systems", description=__doc__.partition("\n")[0])
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    parser.add_argument("--list", action="store_true", help="print the names of the jobs")
    parser.add_argument("--cache", type=Path, default=Path(cache, "mlbackends-systems"))
    parser.add_argument(
        "--tests",
        action="append",
        metavar="PART",
        help="run this alone: `checks`, tests of the job, or others, of which nothing is written",
    )
    parser.add_argument("--processes", default="2", help="of pytest; 2 by default")
    parser.add_argument(
        "--dist",
        type=Path,
        help="a folder of wheels, of which pip takes the one that fits; by default it is built",
    )
    parser.add_argument("job", nargs="*", help=f"all by default: {', '.join(jobs)}")
    options = parser.parse_args()
    if options.list:
        print("\n".join(jobs))
        return 0
    if unknown := set(options.job) - jobs.keys():
        parser.error(f"no job is called {', '.join(sorted(unknown))}")
    failed, skipped = [], []
    for name in options.job or jobs:
        print(f"== {name}", flush=True)
        try:
            with tempfile.TemporaryDirectory(prefix=f"systems-{name}-") as scratch:
                folder = Path(scratch)
                call("git", "clone", "-q", str(TREE), str(folder / "source"))
                dist = options.dist or build_wheel(jobs[name], options.cache, folder)
                right = run_job(name, jobs[name], options, folder, dist)
        except Unavailable as reason:
            print(f"skipped: {name}: {reason}", flush=True)
            skipped.append(name)
            continue
        if not right:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all that ran is right")
    if options.job and skipped:
        print(f"jobs that were named did not run: {', '.join(skipped)}")
        return 1
    return len(failed) > 0


def run_job(name: str, job: dict[str, Any], options: argparse.Namespace, scratch: Path, dist: Path) -> bool:
    """Run one job or the parts that were chosen, and write their results; return whether all is right."""
    system = PREPARE[job["kind"]](job, options.cache / f"{name}-{key(job)}", scratch)
    tree = system.tree
    source = scratch / "source"
    commit = call("git", "rev-parse", "--short=8", "HEAD", cwd=source).decode().strip()
    archive = call("git", "archive", commit, cwd=source)
    tree.mkdir(exist_ok=True)
    subprocess.run(["tar", "x", "-C", tree], input=archive, check=True)
    shutil.copytree(dist, tree / "dist", dirs_exist_ok=True)
    offline = ("--no-deps", "--no-index", "--only-binary=:all:", "--find-links=dist")
    system.run("-m", "pip", "install", "-q", *offline, "mlbackends")
    file = RESULTS / f"{name}.json"
    chosen = options.tests or ["checks", *job["tests"]]
    record: dict[str, Any] = {"tests": {}}
    if options.tests and file.exists():
        record = json.loads(file.read_text(encoding="utf-8"))
    right = True
    for part in chosen:
        began = time.monotonic()
        if part == "checks":
            result = {"how": system.how, **run_checks(system)}
            complaints = [f"FAILED: {check} {why}" for check, why in result["checks"].items() if why]
        else:
            log = options.cache / f"{name}-{part.replace('/', '-')}.log"
            markers = job.get("markers", "not slow")
            result, complaints = run_tests(system, part, markers, options.processes, log)
        result |= {
            "commit": commit,
            "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
            "total_seconds": round(time.monotonic() - began),
        }
        print(f"{part}: {result}", *complaints, sep="\n  ", flush=True)
        right = right and not complaints
        if part == "checks":
            record |= result | {key: job[key] for key in ("row", "column") if key in job}
        elif part in job["tests"]:
            record["tests"][part] = result
        else:
            continue
        record["not_run"] = [test for test in job["tests"] if test not in record["tests"]]
        RESULTS.mkdir(exist_ok=True)
        file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return right


def run_checks(system: System) -> dict[str, Any]:
    """Return what checks.py found, and which wheel it found it with."""
    heads = "import importlib.metadata as m; print(m.distribution('mlbackends').read_text('WHEEL'))"
    tag = system.run("-c", heads).partition("Tag: ")[2].split()[0]
    result: dict[str, Any] = json.loads(system.run("tests/systems/checks.py").splitlines()[-1])
    if not tag.endswith("any"):
        missing = "" if result["native"] else "attention did not compute with the native library"
        result["checks"]["native library"] = missing
    return {**result, "wheel": tag}


def build_wheel(job: dict[str, Any], cache: Path, scratch: Path) -> Path:
    """Return a folder with the wheel of scratch/source for the system of a job, as a release has it.

    Raises Unavailable where the compiler cannot be had, CalledProcessError where it fails.
    """
    pyproject = tomllib.loads((TREE / "pyproject.toml").read_text(encoding="utf-8"))
    tools = pyproject["dependency-groups"]["wheels"]
    python = zig_python(cache, tools)
    source, dist = scratch / "source", scratch / "dist"
    objects = os.environ.get("MLBACKENDS_OBJECTS") or str(cache / "objects")
    subprocess.run(
        [python, "kernels/builder/wheels.py", "--output", dist, job["wheel"]],
        cwd=source,
        env={**os.environ, "MLBACKENDS_OBJECTS": objects},
        check=True,
    )
    return dist


def run_tests(
    system: System, tests: str, markers: str, processes: str, log: Path
) -> tuple[dict[str, Any], list[str]]:
    """Return how many tests passed, failed, were skipped and are listed; and what is wrong."""
    report = system.tree / "report.xml"
    report.unlink(missing_ok=True)
    options = ("-q", "-m", markers, "-n", processes, "-p", "no:cacheprovider", "--tb=short")
    variables = {"TESTED_ON": " ".join(sorted(system.names)), "CI": "true"}
    output = system.run(
        *("-m", "pytest", *options, f"--timeout={TEST_LIMIT}", "--junitxml=report.xml", tests),
        variables=variables,
        limit=LIMIT,
        check=False,
    )
    if not report.exists():
        return {}, [f"{tests} wrote no report: {output[-2000:]}"]
    cases = list(junit_cases(report))
    counts = Counter(case.outcome for case in cases)
    log.write_text(output, encoding="utf-8")
    wrong = [f"FAILED {case.path}::{case.name}" for case in cases if case.outcome == "failed"]
    listed = [case for case in cases if case.outcome == "listed"]
    slow = (TREE / "tests/slow.txt").read_text(encoding="utf-8").split()
    for line in lines_for(system.names):
        is_left_out = markers in {"not slow", "nightly"} and line.partition("[")[0] in slow
        concerned = line.startswith(tests.removesuffix(".py")) and not is_left_out
        if concerned and not any(matches(line, case.path, case.name) for case in listed):
            wrong.append(f"not_here.toml lists {line}, and nothing of it fails here")
    return {key: counts[key] for key in ("passed", "failed", "skipped", "listed")}, wrong


if __name__ == "__main__":
    sys.exit(main())
