"""What an installed wheel must do on any system: nine commands, and facts that Python can tell for itself.

    python tests/systems/checks.py [PYTHON...]      # run in the system; prints one JSON object

Nothing of ours is imported: the commands run as a user runs them. PYTHON: the interpreter with its
options, this one by default.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

TREE = Path(__file__).resolve().parents[2]
LOG = TREE / "tests" / "traces" / "torch-2.13-mkl.log"
#: What the probes call the processors that Python names.
ARCHITECTURES = {"AMD64": "x86_64", "arm64": "aarch64", "ARM64": "aarch64"}
#: Seconds for one command; emulators are slow.
LIMIT = 900

Check = Callable[[], None]


def run(*arguments: str, code: tuple[int, ...] = (0,), **variables: str) -> str:
    """Return what `backends ARGUMENTS` prints.

    Raises AssertionError where it ends with another code, and where it prints a traceback.
    """
    command = [*(sys.argv[1:] or [sys.executable]), "-m", "mlbackends", *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=LIMIT,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **variables},
        check=False,
    )
    text, complaints = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    shown = " ".join(("backends", *arguments))
    assert done.returncode in code, f"{shown} ended with {done.returncode}: {complaints[-800:]}"
    assert "Traceback" not in text + complaints, f"{shown}: {complaints[-800:]}"
    assert "\x1b" not in text, f"{shown}: colour in a pipe"
    return text


def parsed(*arguments: str, code: tuple[int, ...] = (0,)) -> Any:
    return json.loads(run(*arguments, "--format", "json", code=code))


def probes_of(*arguments: str) -> Any:
    return parsed("info", *arguments)["probes"]


def check_info() -> None:
    page = run("info")
    assert platform.python_version() in page
    assert np.__version__ in page
    assert "Machine" in page and "Packages" in page


def check_json() -> None:
    probes = probes_of("cpu", "memory", "host", "python", "numpy")
    machine = platform.machine()
    host, cpu = probes["host"]["facts"], probes["cpu"]["facts"]
    assert host["platform"] == sys.platform, host["platform"]
    assert cpu["architecture"] == ARCHITECTURES.get(machine, machine), cpu["architecture"]
    assert probes["memory"]["facts"]["total_bytes"] == psutil.virtual_memory().total
    assert probes["python"]["version"] == platform.python_version()
    assert probes["numpy"]["version"] == np.__version__
    threads = cpu.get("threads")  # absent where the system does not tell
    assert threads in {None, psutil.cpu_count()}, threads


def check_doctor() -> None:
    checks = parsed("doctor", "--timeout", "120", code=(0, 1))["checks"]
    assert len(checks) > 100
    wrong = [check for check in checks if check["status"] not in {"passed", "failed", "skipped"}]
    assert not wrong, wrong


def check_snapshot() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file, recording = os.path.join(folder, "then.json"), os.path.join(folder, "machine")
        run("snapshot", file)
        run("diff", file, file)
        run("snapshot", recording)
        before, after = probes_of("cpu"), probes_of("cpu", "--root", recording)
        for fact in ("architecture", "machine"):
            assert before["cpu"]["facts"].get(fact) == after["cpu"]["facts"].get(fact)


def check_flags() -> None:
    def flag(**variables: str) -> Any:
        text = run("flags", "list", "--format", "json", code=(0,), **variables)
        flags = json.loads(text)["flags"]
        return next(flag for flag in flags if flag["name"] == "fp32_precision")

    assert (flag()["value"], flag()["origin"]) == ("none", "default")
    changed = flag(MLBACKENDS_FP32_PRECISION="tf32")
    assert changed["value"] == "tf32" and changed["origin"] != "default", changed


def check_sdpa() -> None:
    problem = parsed("sdpa", "check", "--shape", "1,2,64,32", "--dtype", "fp32")["problems"][0]
    results = {result["backend"]: result for result in problem["results"]}
    assert results["math"]["ended"] == "ran"
    for result in results.values():
        if result["ended"] == "ran":
            errors = result["errors"]
            assert 0 <= errors["largest_absolute"] < 1e-5 and not errors["misplaced"], result
        else:
            assert result["ended"] == "cannot" and result["reasons"], result
    if results["flash_cpu"]["ended"] == "ran":
        NATIVE.append(results["flash_cpu"]["details"]["instruction set"])


def check_explain() -> None:
    shape = ("--shape", "2,8,1024,64", "--dtype", "fp16", "--device", "t4")
    problem = parsed("sdpa", "explain", *shape)["problems"][0]
    assert (problem["device"], problem["chosen"]) == ("sm75", "efficient_cuda")
    assert problem["torch_chosen"] == "EFFICIENT_ATTENTION"
    verdicts = {verdict["backend"]: verdict["reasons"] for verdict in problem["torch_verdicts"]}
    assert [reason["code"] for reason in verdicts["FLASH_ATTENTION"]] == ["wrong-capability"]


def check_trace() -> None:
    lines = LOG.read_text(encoding="utf-8").splitlines()
    calls = [line for line in lines if re.match(r"MKL_VERBOSE \w+\(", line)]
    summary = parsed("trace", "show", str(LOG))
    uncounted = sum(line["count"] for line in summary["uncounted"])
    assert summary["count"] + uncounted == len(calls), summary["count"]
    assert sum(row["count"] for row in summary["rows"]) == summary["count"]
    gemm = next(row for row in summary["rows"] if row["values"][1] == "SGEMM")
    assert gemm["count"] == sum(line.startswith("MKL_VERBOSE SGEMM(") for line in calls)


def check_numpy() -> None:
    numpy = probes_of("numpy", "--depth", "usable")["numpy"]
    assert numpy["presence"] == "usable", numpy.get("reasons")
    assert numpy["facts"]["blas"], numpy["facts"]
    folder = Path(numpy["facts"]["location"].replace("~", str(Path.home()), 1))
    assert folder.samefile(Path(np.__file__).parent)


CHECKS: dict[str, Check] = {
    "info": check_info,
    "info --format json": check_json,
    "doctor": check_doctor,
    "snapshot": check_snapshot,
    "flags list": check_flags,
    "sdpa check": check_sdpa,
    "sdpa explain": check_explain,
    "trace show": check_trace,
    "info numpy": check_numpy,
}
#: The instruction set that our native attention computed with, where it did.
NATIVE: list[str] = []


def outcome(check: Check) -> str:
    """Return what is wrong, in one line; nothing where all is right."""
    try:
        check()
    except (
        AssertionError,
        OSError,
        KeyError,
        StopIteration,
        ValueError,
        subprocess.TimeoutExpired,
    ) as error:
        frames = error.__traceback__
        while frames is not None and frames.tb_next is not None:
            frames = frames.tb_next
        line = frames.tb_lineno if frames is not None else 0
        return f"{type(error).__name__} at line {line}: {error}"
    return ""


def main() -> None:
    outcomes, seconds = {}, {}
    for name, check in CHECKS.items():
        start = time.monotonic()
        outcomes[name] = outcome(check)
        seconds[name] = round(time.monotonic() - start, 1)
    record = {
        "system": platform.system(),
        "machine": platform.machine(),
        "byte_order": sys.byteorder,
        "python": platform.python_version(),
        "free_threaded": not getattr(sys, "_is_gil_enabled", lambda: True)(),
        "numpy": np.__version__,
        "native": "".join(NATIVE),
        "checks": outcomes,
        "seconds": seconds,
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
