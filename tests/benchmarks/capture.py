"""What a captured oneDNN line costs its program, and whether all arrive: 100,000 from four processes.

    python tests/benchmarks/capture.py [--rounds 5] [--processes 4] [--lines 25000]

A small C program prints canned lines and flushes each, as oneDNN does, and measures the CPU time of
its printing loop. The ways are taken in turn, round by round; medians are printed. "Adds" is against
the same lines printed into a file without any capture.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from start import processor

from mlbackends.tracing.capture import command as capture

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* program PROCESSES LINES TIMES: appends a line "CPU WALL", in microseconds a line, to TIMES. */
int main(int count, char **words) {
    int processes = atoi(words[1]), lines = atoi(words[2]);
    if (count != 4) return 2;
    for (int process = 0; process < processes; ++process) {
        if (fork()) continue;
        double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), wall = seconds(CLOCK_MONOTONIC);
        for (int line = 0; line < lines; ++line) {
            printf("onednn_verbose,v1,1795257427993.180908,primitive,exec,cpu,convolution,"
                   "brgconv:avx512_core,forward_training,src:f32:a:blocked:acdb::f0 "
                   "wei:f32:a:blocked:Acdb16a::f0 bia:f32:a:blocked:a::f0 "
                   "dst:f32:a:blocked:acdb::f0,attr-scratchpad:user,alg:convolution_direct,"
                   "mb4_ic3oc16_ih64oh64kh3sh1dh0ph1_iw64ow64kw3sw1dw0pw1,%d.%d\n", process, line);
            fflush(stdout);
        }
        cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
        wall = seconds(CLOCK_MONOTONIC) - wall;
        FILE *times = fopen(words[3], "a");
        fprintf(times, "%.4f %.4f\n", 1e6 * cpu / lines, 1e6 * wall / lines);
        fclose(times);
        _exit(0);
    }
    while (wait(0) > 0) {}
    return 0;
}
"""


def measured(way: str, program: str, sizes: list[str], folder: Path) -> tuple[float, float, int]:
    """Run once; return CPU and wall microseconds a line, means over the processes, and lines."""
    times, trace = folder / "times", folder / "trace.log"
    times.unlink(missing_ok=True)
    command = [program, *sizes, str(times)]
    if way in ("file", "/dev/null"):
        with open(trace if way == "file" else way, "wb") as output:
            subprocess.run(command, stdout=output, check=True)
    else:
        capture.run(command, ("onednn",), str(trace), separation=way)
    rows = [tuple(map(float, row.split())) for row in times.read_text().splitlines()]
    lines = 0 if way == "/dev/null" else count(trace)
    cpu, wall = (statistics.mean(column) for column in zip(*rows, strict=True))
    return cpu, wall, lines


def count(trace: Path) -> int:
    """Return how many different lines a trace has."""
    return len({line.rpartition("] ")[2] for line in trace.read_text().splitlines()})


def main() -> None:
    """Measure and print a table in Markdown."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--processes", type=int, default=4)
    options.add_argument("--lines", type=int, default=25000, help="of each process")
    chosen = options.parse_args()
    if shutil.which("cc") is None:
        sys.exit("no C compiler (cc) to make the program with")
    sizes = [str(chosen.processes), str(chosen.lines)]
    ways = ["/dev/null", "file", "preload", "pipe"]
    taken: dict[str, list[tuple[float, float, int]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.c").write_text(PROGRAM)
        program = str(folder / "program")
        subprocess.run(["cc", "-O2", "-o", program, str(folder / "program.c")], check=True)
        for _ in range(chosen.rounds):
            for way in ways:
                taken[way].append(measured(way, program, sizes, folder))
    print(f"{processor()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")
    print(
        f"{chosen.processes} processes x {chosen.lines} lines, medians of {chosen.rounds} rounds\n"
    )
    print("| way | CPU us a line | adds | times the file | wall us a line | lines that arrived |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    base = statistics.median(cpu for cpu, _, _ in taken["file"])
    for way, rounds in taken.items():
        cpu = statistics.median(times[0] for times in rounds)
        wall = statistics.median(times[1] for times in rounds)
        arrived = "" if way == "/dev/null" else str(min(times[2] for times in rounds))
        print(
            f"| {way} | {cpu:.2f} | {cpu - base:+.2f} | {cpu / base:.2f} | {wall:.2f} | {arrived} |"
        )


if __name__ == "__main__":
    main()
