"""What work on a CUDA device costs in Python, over a driver that does nothing: no GPU is in these numbers.

    PYTHON tests/benchmarks/cuda_launch.py [--rounds 15]

The stand-ins of tests/fakelibs are compiled and found first. Every way is timed in turn, by the thread's
CPU time; printed are the median and the least of the rounds, and the median of each round's ratio to a bare
launch of cuda.core, with its configuration and its three arguments made before.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
CALLS = 500
STANDS_IN = (
    ("computing_driver", "libcuda.so.1", ""),
    ("fake_nvrtc", "libnvrtc.so.13", ""),
    ("fake_cublas", "libcublas.so.13", ""),
    ("fake_cublas", "libcublasLt.so.13", "-DLT"),
)


def prepared(folder: str) -> dict[str, str]:
    """Compile the stand-ins; return the environment in which they are found."""
    fakes = ROOT / "tests" / "fakelibs"
    for name, soname, define in STANDS_IN:
        options = ["-shared", "-fPIC", "-O2", "-w", f"-I{fakes}", f"-Wl,-soname,{soname}"]
        command = ["cc", *options, *filter(None, [define]), str(fakes / f"{name}.c"), "-lm", "-ldl"]
        subprocess.run([*command, "-o", f"{folder}/{soname}"], check=True)
    paths = ":".join(str(ROOT / part) for part in ("core", "cli", "probes", "kernels"))
    found_in = {"LD_LIBRARY_PATH": folder, "PYTHONPATH": paths, "XDG_CACHE_HOME": folder}
    return {**os.environ, **found_in}


def ways() -> dict[str, Callable[[], Any]]:
    """Return what is timed, by what the table calls it; the first is what the others are beside."""
    import ctypes

    import numpy as np
    from cuda.core import LaunchConfig, ObjectCode, launch

    import mlbackends
    from mlbackends.cuda import preferences
    from mlbackends.sdpa import call_cache
    from mlbackends_kernels.attention_cuda import requirements
    from mlbackends_kernels.cuda import streams
    from mlbackends_kernels.cuda.device_array import as_device_array, empty, to_device
    from mlbackends_kernels.cuda.devices import core_device
    from mlbackends_kernels.cuda.launching import Kernel
    from mlbackends_kernels.cuda.products import multiply

    preferences.cublas_workspace_size(0)  # the stand-in would fill it with numbers
    core_device(0).set_current()
    cubin = b"\x7fELF" + bytes(124)
    bare = ObjectCode.from_cubin(cubin).get_kernel("nothing")
    kernel = Kernel(cubin, "nothing", (128, 1, 1))
    stream, config = streams.of_core(1), LaunchConfig(grid=(4, 1, 1), block=(128, 1, 1))
    a = to_device(np.ones((8, 8), "f4"))
    number = np.int64(64)

    class Call(ctypes.Structure):
        _fields_ = (("to", ctypes.c_void_p), ("of", ctypes.c_void_p), ("count", ctypes.c_int64))

    def of_structure() -> None:
        kernel(0, 1, (4, 1, 1), Call(to=a.pointer, of=a.pointer, count=64))

    def with_a_result() -> None:
        """Take an array of somebody else's, allocate a result, launch."""
        taken = as_device_array(a, streams.callers(a))
        result = empty(taken.shape, taken.dtype, 0, taken.stream)
        kernel(0, taken.stream, (4, 1, 1), result.pointer, taken.pointer, number)

    # Of NVIDIA's packages there are stand-ins here, and other backends are not what is measured.
    vars(requirements)["missing_parts"] = lambda *_, **__: ()
    mlbackends.cuda.enable_cudnn_sdp(False)
    heads, halves = (
        [to_device(np.ones((1, 2, 16, 32), dtype)) for _ in range(3)] for dtype in ("f4", "f2")
    )
    one_row = [
        to_device(np.ones((1, 2, 1, 32), "f2")),
        *(to_device(np.ones((1, 2, 4096, 32), "f2")),) * 2,
    ]
    attention: Any = mlbackends.scaled_dot_product_attention
    gradients: Any = mlbackends.scaled_dot_product_attention_backward
    doubles = [to_device(np.ones((1, 1, 1, 8))) for _ in range(3)]
    sinks = to_device(np.ones(2, "f2"))
    pages = [halves[0], *(to_device(np.ones((4, 2, 16, 32), "f2")) for _ in range(2))]
    table = to_device(np.zeros((1, 4), "i4"))
    results = attention(*heads, return_logsumexp=True)

    def of_a_new_kind() -> None:
        call_cache._kept.clear()
        attention(*heads)

    return {
        "cuda.core, bare": lambda: launch(stream, config, bare, a.pointer, a.pointer, number),
        "our launch": lambda: kernel(0, 1, (4, 1, 1), a.pointer, a.pointer, number),
        "our launch, a structure": of_structure,
        "our launch, with a result": with_a_result,
        "a result alone": lambda: empty((8, 8), "float32", 0, 1),
        "flash_cuda": lambda: attention(*halves),
        "flash_cuda, keys in parts": lambda: attention(*one_row),
        "flash_cuda, window and sinks": lambda: attention(*halves, window=(4, 4), sinks=sinks),
        "flash_cuda, pages": lambda: attention(*pages, page_table=table, key_lengths=(50,)),
        "efficient_cuda": lambda: attention(*heads),
        "math_cuda, one row and key": lambda: attention(*doubles),
        "attention and logsumexp": lambda: attention(*heads, return_logsumexp=True),
        "its gradients, three launches": lambda: gradients(results[0], *heads, *results),
        "attention of a new kind": of_a_new_kind,
        "multiply, 8x8": lambda: multiply(a, a, (8, 8)),
        **of_torch(attention),
    }


def of_torch(attention: Any) -> dict[str, Callable[[], Any]]:
    """Return calls with tensors of torch, if it is installed: the host's, which say they are a GPU's."""
    if find_spec("torch") is None:
        return {}
    import torch

    kind: Any = torch.Tensor
    # Attributes, which take as long to read as torch's own; and functions of C, as torch's are.
    kind.is_cuda, kind.device = True, torch.device("cuda:0")
    vars(torch.cuda)["get_device_capability"] = lambda _: (9, 0)
    core: Any = torch._C
    core._cuda_getCurrentRawStream = {0: 55}.__getitem__
    guards: Any = core._dynamo.guards
    guards._empty_strided_cuda = guards._empty_strided_cpu
    halves, heads = (
        [torch.ones(1, 2, 16, 32, dtype=each)] * 3 for each in (torch.half, torch.float)
    )
    return {
        "flash_cuda, torch's tensors": lambda: attention(*halves),
        "efficient_cuda, torch's tensors": lambda: attention(*heads),
    }


def measure(rounds: int) -> None:
    """Print the table."""
    timed = ways()
    taken: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds):
        for name, call in timed.items():
            for _ in range(3):
                call()
            begin = time.thread_time()
            for _ in range(CALLS):
                call()
            taken[name].append((time.thread_time() - begin) / CALLS * 1e6)
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    first = next(iter(taken.values()))
    for name, times in taken.items():
        ratio = statistics.median(one / other for one, other in zip(times, first, strict=True))
        print(f"{name:31} {statistics.median(times):6.1f} {min(times):6.1f} us {ratio:6.2f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        measure(options.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        again = [sys.executable, __file__, "--here", "--rounds", str(options.rounds)]
        subprocess.run(again, check=True, env=prepared(folder))


if __name__ == "__main__":
    main()
