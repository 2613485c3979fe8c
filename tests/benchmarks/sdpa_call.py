"""What a call of scaled_dot_product_attention costs where there is next to nothing to compute: 1x1x8x8.

    PYTHONPATH=core:cli:probes:kernels PYTHON tests/benchmarks/sdpa_call.py [--rounds 15]

Every way is timed in turn (A B A B), on one thread and by that thread's CPU time, for others who use the
machine would else be measured too; medians of the rounds are printed, and of each round's ratio to torch's
own way of the same, where torch is there. "looked at" is a call that nothing is prepared for. A cache that
grows has a key more at each call, from 8 to 264, and is cut from a larger one by the call that is timed.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import platform
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import mlbackends
from mlbackends.sdpa.sdp_backend import SDPBackend
from mlbackends.switches import store

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPE, CALLS, LONGEST = (1, 1, 8, 8), 2000, 264
PEER, GROWING, LEARNING = (
    "torch's own",
    "torch's own, a growing cache",
    "torch's own, forth and back",
)
#: Beside which of torch's ways one is told; the others beside a plain call.
BESIDE = {"growing": GROWING, "forth and back": LEARNING}
attend: Any = mlbackends.scaled_dot_product_attention
differentiate: Any = mlbackends.scaled_dot_product_attention_backward


def looked_at(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return a call before which everything that was decided is forgotten."""

    def anew() -> Any:
        store.changed()
        return call()

    return anew


def growing(compute: Callable[..., Any], query: Any, cache: Any) -> Callable[[], Any]:
    """Return a step of decoding: one row of the query, and a key more than in the step before."""
    lengths = itertools.cycle(range(SHAPE[-2], LONGEST + 1))
    row = query[:, :, :1]

    def step() -> Any:
        filled = cache[:, :, : next(lengths)]
        return compute(row, filled, filled)

    return step


def of_arrays() -> dict[str, Callable[[], Any]]:
    """Return what is called with numpy's arrays, by what the table calls it."""
    random = np.random.default_rng(0)
    query, key, value = random.standard_normal((3, *SHAPE)).astype("float32")
    cache = random.standard_normal((*SHAPE[:2], LONGEST, SHAPE[-1])).astype("float32")
    mask = np.tril(np.ones(SHAPE[-2:], bool))
    out, logsumexp = attend(query, key, value, return_logsumexp=True)

    def in_a_scope() -> Any:
        with mlbackends.sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return attend(query, key, value)

    found: dict[str, Callable[[], Any]] = {
        "numpy": lambda: attend(query, key, value),
        "numpy, a mask": lambda: attend(query, key, value, mask),
        "numpy, a growing cache": growing(attend, query, cache),
        "numpy, with the logsumexp": lambda: attend(query, key, value, return_logsumexp=True),
        "numpy, dropout": lambda: attend(query, key, value, dropout_p=0.5, seed=1),
        "numpy, in sdpa_kernel": in_a_scope,
        "numpy, backward": lambda: differentiate(out, query, key, value, out, logsumexp),
    }
    anew = ("numpy", "numpy, with the logsumexp", "numpy, backward")
    return found | {f"{name}, looked at": looked_at(found[name]) for name in anew}


def of_tensors() -> dict[str, Callable[[], Any]]:
    """Return what is called with torch's tensors, torch's own ways among it; {} without torch."""
    if importlib.util.find_spec("torch") is None:
        return {}
    import torch
    from torch.nn import functional

    torch.set_num_threads(1)
    query, key, value = torch.randn(3, *SHAPE)
    cache = torch.randn(*SHAPE[:2], LONGEST, SHAPE[-1])
    learning, given = query.clone().requires_grad_(), torch.randn(SHAPE)
    own = functional.scaled_dot_product_attention

    def forth_and_back(compute: Callable[..., Any]) -> Callable[[], Any]:
        def step() -> None:
            learning.grad = None
            compute(learning, key, value).backward(given)

        return step

    ours = forth_and_back(attend)
    return {
        "torch": lambda: attend(query, key, value),
        "torch, looked at": looked_at(lambda: attend(query, key, value)),
        PEER: lambda: own(query, key, value),
        "torch, a growing cache": growing(attend, query, cache),
        GROWING: growing(own, query, cache),
        "torch, forth and back": ours,
        "torch, forth and back, looked at": looked_at(ours),
        LEARNING: forth_and_back(own),
    }


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
    timed = of_arrays() | of_tensors()
    for call in timed.values():
        microseconds(call, 3)
    seen: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds):
        for name, call in timed.items():
            call(), call()  # what was decided before is forgotten by "looked at"
            seen[name].append(microseconds(call, CALLS // 10 if "looked" in name else CALLS))
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {platform.machine()}")
    print(f"| call of {'x'.join(map(str, SHAPE))} | microseconds | times torch's own |")
    print("| --- | ---: | ---: |")
    for name, taken in seen.items():
        beside = next((peer for word, peer in BESIDE.items() if word in name), PEER)
        peers = seen.get(beside, [])
        ratio = statistics.median(map(float.__truediv__, taken, peers)) if peers else None
        told = "" if ratio is None else f"{ratio:.2f}"
        print(f"| {name} | {statistics.median(taken):.1f} | {told} |")


if __name__ == "__main__":
    main()
