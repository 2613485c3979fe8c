"""Whether `backends sdpa check` finds the time of torch's flash attention that a program finds alone.

    python tests/benchmarks/sdpa_check.py PYTHON_WITH_TORCH [--rounds 5] [--length 128]

Both are run in turn, the check with all peers beside it; the time of the check by that of the program is
printed round by round, and as a median. What the check marks as unstable is printed as such.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess

from start import BACKENDS, processor

ALONE = """
import statistics, time, torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
tensors = [torch.randn(1, 8, {length}, 64) for _ in range(3)]
seconds = []
with torch.no_grad(), sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    begin = stop = time.perf_counter()
    while stop < begin + 1:
        start = time.perf_counter()
        scaled_dot_product_attention(*tensors)
        stop = time.perf_counter()
        seconds.append(stop - start)
print(statistics.median(seconds))
"""


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("python")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--length", type=int, default=128)
    given = options.parse_args()
    words = ("sdpa", "check", "--shape", f"1,8,{given.length},64", "--peers", "--format", "json")
    ratios = []
    print(processor())
    for _ in range(given.rounds):
        alone = float(_output(given.python, "-c", ALONE.format(length=given.length)))
        record = json.loads(_output(BACKENDS, *words, "--python", given.python))
        results = {result["backend"]: result for result in record["problems"][0]["results"]}
        timing = results["torch_flash"]["timing"]
        ratio = timing["median_seconds"] / alone
        print(
            f"{alone * 1e6:.0f} us alone, {ratio:.2f} times that in the check {timing['unstable']}"
        )
        if not timing["unstable"]:
            ratios.append(ratio)
    if ratios:
        print(f"median {statistics.median(ratios):.2f}, of {len(ratios)} that were stable")


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
