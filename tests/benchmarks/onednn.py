"""flash_cpu beside oneDNN's fused attention on the CPU, as ratios, and how far each is from float64.

    .venv/bin/python tests/benchmarks/onednn.py --python PYTHON_WITH_ONEDNN [--threads 1 2] [--rounds 15]

Each round times ours and oneDNN's in turn (A B A B), each in its process; medians of the rounds' ratios are
printed. Above 1 is ahead of oneDNN. An error is the largest one, in units of the plain formula's in the same
type. With one thread, both have one processor.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from mlbackends.model.checked import Ended
from mlbackends.sdpa.problem_text import parse
from mlbackends.sdpa.verify.processes import Plan
from mlbackends.sdpa.verify.run import bench

if TYPE_CHECKING:
    from mlbackends.model.benched import BenchedProblem

NAMES = ("flash_cpu", "onednn_graph")
# Sixteen heads: oneDNN goes head by head only where there are more than two for each thread.
PROBLEMS = [
    f"--shape 1,16,1024,{width} --dtype {dtype}{causal}"
    for causal in ("", " --causal")
    for dtype in ("float32", "bfloat16")
    for width in (64, 128)
]


def row(problem: BenchedProblem, count: int) -> str:
    """Return a row of the table."""
    results = {each.backend: each for each in problem.checked.results}
    words = problem.checked.text.replace("--", "")
    theirs = results["onednn_graph"]
    if theirs.ended is not Ended.RAN:
        return f"| {words} | {count} | {'; '.join(each.message for each in theirs.reasons)} | | | |"
    found = next(each for each in problem.ratios if (each.backend, each.to) == NAMES)
    ratio = f"{found.median:.2f} ({found.lower:.2f} to {found.upper:.2f})"
    errors = [results[name].errors for name in NAMES]
    told = [f"{each.in_reference_errors:.2f}" if each else "" for each in errors]
    memory = theirs.memory.extra_bytes >> 20 if theirs.memory else 0
    return f"| {words} | {count} | {ratio} | {told[0]} | {told[1]} | {memory} MiB, {theirs.told['kernel']} |"


def main() -> None:
    """Measure and print a table in Markdown."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--python", required=True)
    options.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    options.add_argument("--rounds", type=int, default=15)
    chosen = options.parse_args()
    plan = Plan(names=NAMES, pythons=(chosen.python,), rounds=chosen.rounds)
    print(f"load {Path('/proc/loadavg').read_text().split()[0]}; {chosen.rounds} rounds\n")
    print(
        "| problem | threads | oneDNN's time / ours | our error | oneDNN's | its memory, kernel |"
    )
    print("| --- | ---: | ---: | ---: | ---: | --- |")
    processors = sorted(os.sched_getaffinity(0))
    for count in chosen.threads:
        os.sched_setaffinity(0, processors[:count])
        os.environ["OMP_NUM_THREADS"] = str(count)
        for words in PROBLEMS:
            (problem,) = bench(parse(words), plan).problems
            print(row(problem, count), flush=True)


if __name__ == "__main__":
    main()
