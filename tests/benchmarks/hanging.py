"""How long `backends info` takes beyond the time limit when drivers hang.

    python tests/benchmarks/hanging.py [--timeout 2] [--rounds 5]

Libraries that never come back from being opened are compiled under the names of real ones, and put
into LD_LIBRARY_PATH. Needs a C compiler. Medians are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = """
#include <unistd.h>
__attribute__((constructor)) void hang(void) { for (;;) WAIT; }
"""
NAMES = (
    "libcuda.so.1", "libnvidia-ml.so.1", "libcudnn.so.9", "libnccl.so.2", "libcudart.so.13",
    "libcublas.so.13", "libnvrtc.so.13", "libcufft.so.12", "libcurand.so.10", "libcusolver.so.12",
    "libcusparse.so.12", "libOpenCL.so.1", "libvulkan.so.1", "libamdhip64.so.7", "libze_loader.so.1",
    "libmkl_rt.so.2", "libdnnl.so.3", "libopenblas.so.0", "libfftw3.so.3", "libtbb.so.12",
)  # fmt: skip


def beyond(folder: Path, timeout: float) -> float:
    """Return by how many seconds a run with these libraries outlasts the time limit."""
    command = [sys.executable, "-m", "mlbackends", "info", "--timeout", str(timeout)]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    start = time.perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start - timeout


def main() -> None:
    """Measure and print a table in Markdown."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--timeout", type=float, default=2.0)
    options.add_argument("--rounds", type=int, default=5)
    chosen = options.parse_args()
    print(f"seconds beyond a time limit of {chosen.timeout:g} s, medians of {chosen.rounds} rounds\n")
    print("| libraries that hang | asleep | busy |")
    print("| ---: | ---: | ---: |")
    for count in (1, 3, 8, 20):
        cells = []
        for wait in ("pause()", ""):
            with tempfile.TemporaryDirectory() as name:
                for library in NAMES[:count]:
                    command = ["cc", "-shared", "-fPIC", f"-DWAIT={wait}", f"-Wl,-soname,{library}"]
                    command += ["-x", "c", "-", "-o", str(Path(name) / library)]
                    subprocess.run(command, input=SOURCE, text=True, check=True)
                runs = [beyond(Path(name), chosen.timeout) for _ in range(chosen.rounds)]
            cells.append(f"{statistics.median(runs):.2f}")
        print(f"| {count} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
