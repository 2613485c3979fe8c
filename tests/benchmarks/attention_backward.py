"""flash_cpu's gradients beside those of torch's flash attention on the CPU, as ratios.

    PYTHONPATH=core:cli:probes:kernels PYTHON_WITH_TORCH tests/benchmarks/attention_backward.py
        [--threads 1 2] [--rounds 9]

Measured as in attention.py, whose machine and clock these are: torch's
_scaled_dot_product_flash_attention_for_cpu_backward and ours in turn, from the same result and logarithms.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from attention import Machine, as_numpy, processor, timed

from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends_kernels.attention_cpu import gradients, library, threads

if TYPE_CHECKING:
    from collections.abc import Callable

HEADS = 4
#: What the time of torch is to be, in times of ours.
GOALS = {"float32": 1.2, "bfloat16": 2.0}


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    dtype: str
    length: int
    width: int
    causal: bool

    @property
    def name(self) -> str:
        """What the table calls it."""
        told = f"{self.dtype} {HEADS} heads, L {self.length}, E {self.width}"
        return f"{told}, causal" if self.causal else told


CASES = [
    Case(dtype, length, width, causal)
    for dtype in GOALS
    for length in (1024, 2048)
    for width in (64, 128)
    for causal in (False, True)
]


def calls(case: Case) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Return ours and torch's way to compute a case."""
    aten, generator = torch.ops.aten, torch.Generator().manual_seed(0)
    dtype, shape = getattr(torch, case.dtype), (1, HEADS, case.length, case.width)
    query, key, value, grad_out = (
        torch.randn(shape, generator=generator).to(dtype) for _ in range(4)
    )
    out, sums = aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, case.causal
    )
    arrays = (as_numpy(query), as_numpy(key), as_numpy(value))
    spec = TensorSpec(shape, case.dtype, requires_grad=True)
    problem = AttentionProblem(query=spec, key=spec, value=spec, is_causal=case.causal)
    of_output, result = as_numpy(grad_out), as_numpy(out)
    # torch lays its logarithms out by rows; ours would copy them in each call.
    logarithms = sums.contiguous().numpy()

    def ours() -> Any:
        return gradients.differentiate(problem, of_output, *arrays, None, result, logarithms)

    def theirs() -> Any:
        return aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad_out, query, key, value, out, sums, 0.0, case.causal
        )

    return ours, theirs


def measure(case: Case, count: int, rounds: int, machine: Machine) -> str:
    """Return a row of the table."""
    ours, theirs = calls(case)
    pairs = case.length * (case.length + 1) / 2 if case.causal else case.length**2
    operations = 10 * HEADS * case.width * pairs
    ratios, shares, of_torch = [], [], []
    for _ in range(rounds):
        best = machine.multiply_adds()
        mine, other = timed(ours, 1, count == 1), timed(theirs, 1, count == 1)
        best = max(best, machine.multiply_adds()) * count * 1e9
        ratios.append(other / mine)
        shares.append(operations / mine / best)
        of_torch.append(operations / other / best)
    ratio, spread = statistics.median(ratios), statistics.quantiles(ratios, n=4)
    told = f"{ratio:.2f} ({spread[0]:.2f} to {spread[2]:.2f})"
    share, other = statistics.median(shares), statistics.median(of_torch)
    return f"| {case.name} | {count} | {GOALS[case.dtype]} | {told} | {share:.2f} | {other:.2f} |"


def main() -> None:
    """Measure and print a table in Markdown."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--threads", type=int, nargs="*", default=[1])
    options.add_argument("--rounds", type=int, default=9)
    chosen = options.parse_args()
    print(f"{processor()}; {library.usable_levels()[-1]}; torch {torch.__version__}")
    print(
        f"Python {platform.python_version()}; load {Path('/proc/loadavg').read_text().split()[0]}\n"
    )
    print(
        "| problem | threads | goal | torch's time / ours (quartiles) | share of peak | torch's |"
    )
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder))
        for count in chosen.threads:
            torch.set_num_threads(count)
            threads.set_num_threads(count)
            for case in CASES:
                print(measure(case, count, chosen.rounds, machine), flush=True)


if __name__ == "__main__":
    main()
