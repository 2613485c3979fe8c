"""The cost of `resolve`: CPU time and memory beyond start-up, for one package and for many.

    python tests/benchmarks/resolve.py --python PYTHON [--package torch] [--many 300]

PYTHON is the interpreter of an environment that has the package. For --many, an environment of links to its
packages with shared objects, under other names, is made in a temporary folder.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from mlbackends.host.host import Host
from mlbackends.host.interpreter import query
from mlbackends.host.python.packages import distributions
from mlbackends.loading.imports import shared_objects
from mlbackends.loading.packages import resolve


def measured(python: dict[str, Any], subjects: list[str] | None) -> tuple[int, float, float]:
    """Return how many packages were answered, the CPU seconds, and the MB beyond start-up."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    count = len(resolve(Host("/", python=python), subjects).packages)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return count, time.process_time() - start, (after - before) / 1024


def many(python: dict[str, Any], folder: Path, count: int) -> dict[str, Any]:
    """Return an interpreter whose import folders have so many packages with shared objects, as links."""
    host = Host("/", python=python)
    dists = [d[0] for d in distributions(host).values() if shared_objects(host, d[0])]
    paths = [folder for folder in python["path"] if "site-packages" not in folder]
    for turn in range(-(-count // len(dists))):
        site = folder / f"{turn}" / "site-packages"
        site.mkdir(parents=True)
        for name in os.listdir(dists[0].folder):
            stem, dot, rest = name.rpartition(".dist-info")
            project, dash, version = stem.partition("-")
            target = f"{project}_{turn}{dash}{version}{dot}{rest}" if dot and turn else name
            (site / target).symlink_to(f"{dists[0].folder}/{name}")
        paths.append(str(site))
    return {**python, "path": paths}


def main() -> None:
    """Measure each in a process of its own, and print a table in Markdown."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--python", required=True)
    options.add_argument("--package", default="torch")
    options.add_argument("--many", type=int, default=300)
    chosen = options.parse_args()
    python = query(chosen.python)
    print("| packages | CPU s | MB beyond start-up |\n| ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        asked = [(python, [chosen.package]), (python, None), (many(python, Path(folder), chosen.many), None)]
        for row in asked:
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                count, seconds, megabytes = pool.apply(measured, row)
            print(f"| {count} | {seconds:.2f} | {megabytes:.0f} |")


if __name__ == "__main__":
    main()
