"""Run the attention library under sanitizers: ``python tests/kernels/native/sanitize.py [KIND]...``.

address: AddressSanitizer and UndefinedBehaviorSanitizer. thread: ThreadSanitizer, several callers and helpers
at once. A program of its own (attention_grid.cpp) calls the library with memory that ends where a tensor
ends, and compares what it gets with a plain computation; Python stays out of it. The library has the highest
instruction set of this CPU alone. ``--all-levels``: every one, and on AVX-512 what multiplies by AVX-512 BF16
and AMX, emulated. ``--all-problems``: more than take every path once, ten minutes of them.

Ends with 0 where all are clean, 1 where one is not; a kind that this compiler lacks is reported as skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from grid import EMULATED_PAIRS, build, builder

from mlbackends_kernels.attention_cpu.library import NotBuilt, usable_levels

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = {
    # AddressSanitizer finds null itself, and calls for its checks compile sooner than what they do.
    "address": (
        *("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-sanitize=null"),
        *("--param", "asan-instrumentation-with-call-threshold=0"),
    ),
    "thread": ("-fsanitize=thread",),
}
FLAGS = ("-O1", "-g1", "-fno-omit-frame-pointer")
_REST = re.compile(r"-DMLBACKENDS_REST=(\w+)")
#: A program that says no more than that a sanitizer's libraries are there and that it starts.
LEAST = "int main() { return 0; }\n"


def lacking(kind: str, folder: Path) -> str:
    """Return why there can be no program under this sanitizer; "" where there can."""
    source, program = folder / "least.cpp", folder / "least"
    source.write_text(LEAST, encoding="utf-8")
    for command in (["c++", *KINDS[kind], str(source), "-o", str(program)], [str(program)]):
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
        except OSError as error:
            return f"{command[0]} cannot be started: {error.strerror}"
        if done.returncode:
            return (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[-1]
    return ""


def leave_what_runs(levels: dict[str, str], usable: Sequence[str], *, every: bool) -> None:
    """Leave of the flags of each level those of the highest usable one that needs no other.

    every: those of each usable one, and of those that are made of them, which are emulated.
    """
    rests = {name: _REST.findall(flags) for name, flags in levels.items()}
    whole = [name for name in usable if not rests[name]]
    kept = {*whole[-1:]}
    if every:
        kept = {*whole, *(name for name, rest in rests.items() if {*rest} & {*whole})}
    for name in levels.keys() - kept:
        del levels[name]


def main(words: list[str]) -> int:
    """Build and run each kind; say what was found."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--all-levels", action="store_true", help="not the highest level alone")
    parser.add_argument("--all-problems", action="store_true", help="ten minutes of them")
    arguments = parser.parse_args(words)
    if unknown := set(arguments.kinds) - KINDS.keys():
        parser.error(f"there is no {', '.join(unknown)}; there are: {', '.join(KINDS)}")
    found = 0
    options = {"UBSAN_OPTIONS": "print_stacktrace=1", "TSAN_OPTIONS": "halt_on_error=1"}
    for kind in arguments.kinds or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            if why := lacking(kind, Path(folder)):
                print(f"skipped: no {kind} sanitizer works here: {why}", flush=True)
                continue
            native = builder()
            levels = native.LEVELS.get(platform.machine(), {})
            with contextlib.suppress(NotBuilt):  # then nothing tells, and all stay
                leave_what_runs(levels, usable_levels(), every=arguments.all_levels)
            flags = (*KINDS[kind], *FLAGS)
            program = build(Path(folder), native, flags=flags, library=EMULATED_PAIRS)
            command = [str(program), kind, *(["every"] * arguments.all_problems)]
            done = subprocess.run(command, env={**os.environ, **options}, check=False, timeout=1800)
            ended = "clean" if not done.returncode else f"ended with {done.returncode}"
            print(f"{kind}: {ended}", flush=True)
            found |= int(done.returncode != 0)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
