"""Attention on the CPU under another system and this one: Windows' Python under Wine, on one machine.

    PYTHON tests/benchmarks/other_system.py [--rounds 15] COMMAND...

COMMAND runs the other Python with a program as its last argument (``... python.exe -c``); the packages and
the library, built by the same compiler, can be imported there. Both Pythons stay, and compute each problem in
turn (A B A B), which arrive by a socket: the least time of a few calls in a row. Medians of rounds
are printed, and of each round's ratio.
"""

from __future__ import annotations

import argparse
import json
import platform
import socket
import statistics
import subprocess
import sys
from typing import IO

#: Batch, heads, rows, keys, width, threads.
PROBLEMS = {
    "next to nothing": (1, 1, 8, 8, 8, 1),
    "prefill, one thread": (1, 8, 128, 128, 64, 1),
    "prefill, threads": (1, 8, 128, 128, 64, 0),
    "long prefill, threads": (1, 8, 512, 512, 64, 0),
    "decode, threads": (1, 32, 1, 2048, 128, 0),
}
PROGRAM = """
import json, socket, sys, time
import numpy as np, mlbackends
from mlbackends_kernels.attention_cpu import library, threads
talk = socket.create_connection(("127.0.0.1", {port})).makefile("rw", encoding="utf-8")
levels = library.compiled_levels()
print(json.dumps([sys.platform, levels[library.level()], threads.get_num_threads()]), file=talk, flush=True)
whole, kept = threads.get_num_threads(), dict()
for line in talk:
    batch, heads, rows, keys, width, count = problem = tuple(json.loads(line))
    if problem not in kept:
        random = np.random.default_rng(0)
        kept[problem] = [random.standard_normal((batch, heads, length, width)).astype("float32")
                         for length in (rows, keys, keys)]
    threads.set_num_threads(count or whole)
    times = []
    for _ in range(5 if rows * keys > 4096 else 200):
        begun = time.perf_counter_ns()
        mlbackends.scaled_dot_product_attention(*kept[problem])
        times.append(time.perf_counter_ns() - begun)
    print(min(times), file=talk, flush=True)
"""


class Worker:
    """A Python that computes the problems that it receives."""

    def __init__(self, command: list[str]) -> None:
        server = socket.create_server(("127.0.0.1", 0))
        self.process = subprocess.Popen([*command, PROGRAM.format(port=server.getsockname()[1])])
        server.settimeout(120)
        self.talk: IO[str] = server.accept()[0].makefile("rw", encoding="utf-8")
        self.system, self.level, self.threads = json.loads(self.talk.readline())

    def least_ns(self, problem: tuple[int, ...]) -> int:
        print(json.dumps(problem), file=self.talk, flush=True)
        return int(self.talk.readline())


def main() -> None:
    """Measure both, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    workers = [Worker([sys.executable, "-c"]), Worker(arguments.command)]
    for worker in workers:
        print(f"{worker.system}: {worker.level}, {worker.threads} threads")
    print(
        f"{platform.machine()}, {arguments.rounds} rounds\n\n| problem | here µs | there µs | ratio |"
    )
    print("| --- | ---: | ---: | ---: |")
    for name, problem in PROBLEMS.items():
        rounds = [[worker.least_ns(problem) for worker in workers] for _ in range(arguments.rounds)]
        here, there = (statistics.median(times) / 1000 for times in zip(*rounds, strict=True))
        ratio = statistics.median(other / own for own, other in rounds)
        print(f"| {name} | {here:.1f} | {there:.1f} | {ratio:.2f} |", flush=True)
    for worker in workers:
        worker.talk.close()
        worker.process.terminate()


if __name__ == "__main__":
    main()
