"""What a call of scaled_dot_product_attention costs where there is next to nothing to compute: 1x1x8x8.

    PYTHONPATH=build/editable PYTHON tests/benchmarks/sdpa_call.py [--rounds 15]

Every way is timed in turn (A B A B), on one thread and by that thread's CPU time, for others who use the
machine would else be measured too; medians of the rounds are printed, and of each round's ratio to torch's
own call, where torch is there. "looked at" is a call that nothing is prepared for.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import mlbackends
from mlbackends import flag_store

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE, CALLS = (1, 1, 8, 8), 2000
PEER = "torch's own"


def ways() -> dict[str, Callable[[], Any]]:
    """Return what is called, by what the table calls it."""
    attend: Any = mlbackends.scaled_dot_product_attention
    query, key, value = np.random.default_rng(0).standard_normal((3, *SHAPE)).astype("float32")
    mask = np.tril(np.ones(SHAPE[-2:], bool))

    def looked_at(*tensors: Any) -> Any:
        flag_store.changed()
        return attend(*tensors)

    found: dict[str, Callable[[], Any]] = {
        "numpy": lambda: attend(query, key, value),
        "numpy, a mask": lambda: attend(query, key, value, mask),
        "numpy, looked at": lambda: looked_at(query, key, value),
    }
    if importlib.util.find_spec("torch") is not None:
        import torch
        from torch.nn import functional

        torch.set_num_threads(1)
        tensors = [torch.from_numpy(each.copy()) for each in (query, key, value)]
        found |= {
            "torch": lambda: attend(*tensors),
            "torch, looked at": lambda: looked_at(*tensors),
            PEER: lambda: functional.scaled_dot_product_attention(*tensors),
        }
    return found


def microseconds(call: Callable[[], Any], calls: int) -> float:
    """Return what one of so many calls took this thread."""
    start = time.thread_time_ns()
    for _ in range(calls):
        call()
    return (time.thread_time_ns() - start) / calls / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    timed = ways()
    for call in timed.values():
        microseconds(call, 3)
    seen: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds):
        for name, call in timed.items():
            seen[name].append(microseconds(call, CALLS // 10 if "looked" in name else CALLS))
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}")
    print(
        f"| call of {'x'.join(map(str, SHAPE))} | microseconds | times {PEER} |\n| --- | ---: | ---: |"
    )
    for name, taken in seen.items():
        peers = seen.get(PEER, [])
        ratio = (
            statistics.median(a / b for a, b in zip(taken, peers, strict=True)) if peers else None
        )
        told = "" if ratio is None else f"{ratio:.2f}"
        print(f"| {name} | {statistics.median(taken):.1f} | {told} |")


if __name__ == "__main__":
    main()
