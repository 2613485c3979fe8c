"""What adding up a million trace lines costs, compared with oneDNN's own converter and a regular expression.

    python tests/benchmarks/traces.py [--converter DIR] [--lines 1000000] [--rounds 3] [--formats] [--polars]

DIR is scripts/verbose_converter of a checkout of oneDNN; without it that row is left out. The lines are
those of tests/traces with other times: `repeated` as they are (some 70 different calls), `diverse` with
other sizes (36,000 different calls), `stamped` with time stamps and program text between, MKL's with the
addresses as they were or with new ones in each line. All read the same file and print a table by
primitive, implementation and problem, or by routine and arguments; ours prints minimum, maximum and
median as well. --formats measures `trace show` in the formats that hold every record, too.
CPU time and peak memory are those of the process; the programs take turns.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TRACES = Path(__file__).resolve().parents[1] / "traces"
DIFFERENT = 36_000

OURS = """
import sys
from mlbackends.tracing.sources import Source
from mlbackends.tracing.viewing import begin
from mlbackends.tracing.walk import Walk
summary = begin("summary", by=("operation", "implementation", "shape", "arguments.lda"))
Walk([summary]).add(Source(sys.argv[1]).chunks())
for row in summary.result().rows:
    print(*row.values, row.count, row.total_ns, row.min_ns, row.max_ns, row.median_ns, sep="\\t")
"""

POLARS = r"""
import sys
import polars as pl
options = {"has_header": False, "separator": "\x01", "quote_char": None, "new_columns": ["line"]}
lines = pl.read_csv(sys.argv[1], schema_overrides=[pl.String], **options).lazy()
line = pl.col("line")
if "MKL" in sys.argv[2]:
    parts = line.str.extract_groups(r"^(?<key>.*\) )(?<time>[\d.]+)[num]?s (?<state>.*)$")
    key = pl.col("key").str.replace_all("0x[0-9a-f]+", "0x*")
    calls = lines.select(parts.struct.unnest()).with_columns(key)
else:
    key = line.str.strip_chars_end("0123456789.e+-")
    calls = lines.select(key.alias("key"), line.str.strip_prefix(key).alias("time"))
time = pl.col("time").cast(pl.Float64, strict=False)
found = calls.group_by(pl.exclude("time"), maintain_order=True).agg(
    pl.len(), *(getattr(time, name)().alias(name) for name in ("sum", "min", "max", "median")))
for row in found.collect().iter_rows():
    print(*row, sep="\t")
"""

STREAMED = """
import sys
from mlbackends.tracing.reader import read
totals = {}
for record in read(sys.argv[1]):
    if record.duration_ns is not None:
        total = totals.setdefault(record.key, [0, 0.0])
        total[0] += 1
        total[1] += record.duration_ns
for key, (count, total) in totals.items():
    print(key, count, total, sep="\\t")
"""

SHOW = [sys.executable, "-c", "from mlbackends_cli import program; program()", "trace", "show"]
FORMATS = [["--format", form] for form in ("html", "csv", "jsonl")]

PLAIN_MKL = r"""
import re, sys
line_form = re.compile(r"MKL_VERBOSE (\w+)\((.*)\) ([\d.]+)(ns|us|ms|s) (.*)")
address = re.compile(r"0x[0-9a-f]+")
units = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
totals = {}
for line in open(sys.argv[1]):
    found = line_form.match(line)
    if found:
        name, arguments, time, unit, state = found.groups()
        key = name, address.sub("0x*", arguments), state
        count, total = totals.get(key, (0, 0.0))
        totals[key] = count + 1, total + float(time) * units[unit]
for key, (count, total) in totals.items():
    print(*key, count, total, sep="\t")
"""


def measured(command: list[str]) -> tuple[float, float]:
    """Run a command; return its CPU seconds and its peak memory in MB."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[:3]} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e6


def real_lines(pattern: str) -> list[str]:
    """Return the different lines of the samples that match, sorted."""
    found = set()
    for path in TRACES.glob("*.log"):
        for line in path.read_text(errors="replace").splitlines():
            if re.fullmatch(pattern, line):
                found.add(line)
    return sorted(found)


def onednn_lines(dice: random.Random, count: int, *, diverse: bool) -> Iterator[str]:
    """Yield lines of executions and creations with other times, and other sizes if diverse."""
    lines = real_lines(r"onednn_verbose,v1,primitive,(exec|create:cache_\w+),.*,[\d.]+")
    # The converter ends with an IndexError at the old descriptors of gemm_api.
    heads = sorted({line.rpartition(",")[0] for line in lines if "gemm_api" not in line})
    if diverse:
        heads = [resized(dice, dice.choice(heads)) for _ in range(DIFFERENT)]
    for _ in range(count):
        yield f"{dice.choice(heads)},{10 ** dice.uniform(-3, 2):g}\n"


def resized(dice: random.Random, head: str) -> str:
    """Return a line's head with another first size in its problem."""
    before, _, problem = head.rpartition(",")
    return f"{before},{re.sub(r'[0-9]+', str(dice.randint(1, 4000)), problem, count=1)}"


def stamped_lines(dice: random.Random, count: int) -> Iterator[str]:
    """Yield lines with time stamps, and a tenth of program text, some of it on the same line."""
    moment = 1795258901078.068115
    for index, line in enumerate(onednn_lines(dice, count, diverse=False)):
        moment += dice.random()
        if index % 10 == 0:
            yield f"step {index} loss=0.{index}" + (" " if index % 100 == 0 else "\n")
        yield line.replace("v1,", f"v1,{moment:.6f},", 1)


def mkl_lines(dice: random.Random, count: int, *, fresh: bool) -> Iterator[str]:
    """Yield calls with other times, and with new addresses if they are to be fresh."""
    lines = real_lines(r"MKL_VERBOSE \w+\(.*\) [\d.]+[num]s CNR.*")
    lines = [line for line in lines if "FFT(" not in line or "1407" not in line]
    parts = [re.fullmatch(r"(.*\) )[\d.]+(.*)", line) for line in lines]
    ends = [part.groups() for part in parts if part]
    for _ in range(count):
        head, tail = dice.choice(ends)
        if fresh:
            head = re.sub(r"0x[0-9a-f]{12}", lambda _: f"0x7f{dice.getrandbits(40):010x}", head)
        yield f"{head}{dice.uniform(1, 999):.2f}{tail}\n"


def written(path: Path, lines: Iterator[str]) -> str:
    """Write a log; return its name."""
    with path.open("w") as file:
        file.writelines(lines)
    return str(path)


def compared(name: str, commands: dict[str, list[str]], rounds: int) -> None:
    """Run the commands in turn, and print medians, and ratios to the first."""
    times: dict[str, list[tuple[float, float]]] = {tool: [] for tool in commands}
    for _ in range(rounds):
        for tool, command in commands.items():
            times[tool].append(measured(command))
    first = statistics.median(cpu for cpu, _ in times[next(iter(commands))])
    for tool, figures in times.items():
        cpu = statistics.median(value for value, _ in figures)
        memory = max(value for _, value in figures)
        print(f"| {name} | {tool} | {cpu:.2f} | {cpu / first:.3f} | {memory:.0f} |", flush=True)


def processor() -> str:
    """Return the processor's name, and how many cores it has."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"model name\s*: (.*)", text)
    return f"{found[1] if found else platform.machine()}, {os.cpu_count()} cores"


def main() -> None:
    """Make the logs, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--converter", type=Path, help="scripts/verbose_converter of oneDNN")
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streamed", action="store_true", help="records one by one as well")
    parser.add_argument("--formats", action="store_true", help="html, csv and jsonl as well")
    parser.add_argument("--polars", action="store_true", help="grouping by polars as well")
    parser.add_argument("--log", default="", help="only logs with this word in their name")
    arguments = parser.parse_args()
    dice = random.Random(4)
    count = arguments.lines
    print(
        f"{processor()}; Python {platform.python_version()}; {count} lines; medians of {arguments.rounds}\n"
    )
    print("| log | program | CPU s | ratio | peak MB |\n| --- | --- | ---: | ---: | ---: |")
    ours = [sys.executable, "-c", OURS]
    makers: dict[str, tuple[Callable[[], Iterator[str]], str]] = {
        "oneDNN, repeated": (lambda: onednn_lines(dice, count, diverse=False), "converter"),
        "oneDNN, diverse": (lambda: onednn_lines(dice, count, diverse=True), "converter"),
        "oneDNN, stamped": (lambda: stamped_lines(dice, count), ""),
        "MKL, addresses again": (lambda: mkl_lines(dice, count, fresh=False), "regex"),
        "MKL, new addresses": (lambda: mkl_lines(dice, count, fresh=True), "regex"),
    }
    for name, (make, peer) in makers.items():
        if arguments.log not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            log = written(Path(folder, "trace.log"), make())
            commands = {}
            if peer == "converter" and arguments.converter:
                script = str(arguments.converter / "verbose_converter.py")
                keys = ["-g", "breakdown", "-k", "prim_kind", "impl", "shapes"]
                commands["verbose_converter"] = [sys.executable, script, "-i", log, *keys]
            if peer == "regex":
                commands["regular expression"] = [sys.executable, "-c", PLAIN_MKL, log]
            commands["ours"] = [*ours, log]
            if arguments.polars:
                commands["polars, no call parsed"] = [sys.executable, "-c", POLARS, log, name]
            for options in FORMATS if arguments.formats else ():
                commands[f"ours, {' '.join(options)}"] = [*SHOW, log, *options]
            if arguments.streamed:
                commands["ours, record by record"] = [sys.executable, "-c", STREAMED, log]
            compared(name, commands, arguments.rounds)


if __name__ == "__main__":
    main()
