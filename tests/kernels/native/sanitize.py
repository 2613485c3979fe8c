"""Run the attention library under sanitizers, on a small grid: ``python tests/kernels/native/sanitize.py``.

address: AddressSanitizer and UndefinedBehaviorSanitizer, every instruction set of this CPU, the products of
AVX-512 BF16 emulated. thread: ThreadSanitizer, several callers and helpers at once. A program of its own
(attention_grid.cpp) calls the library with memory that ends where a tensor ends; Python stays out of it.

Ends with 0 where both are clean, 1 where one is not, 2 where it cannot be compiled.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
KINDS = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "thread": ("-fsanitize=thread",),
}


def hook() -> Any:
    """Return the build hook, which knows the flags."""
    spec = spec_from_file_location("hook", ROOT / "kernels" / "builder" / "hook.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(kinds: list[str]) -> int:
    """Build and run each kind; say what was found."""
    if unknown := set(kinds) - KINDS.keys():
        print(f"there is no {', '.join(unknown)}; there are: {', '.join(KINDS)}", file=sys.stderr)
        return 2
    found, builder = 0, hook()
    for kind in kinds or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            library, program = Path(folder, "attention.so"), Path(folder, "grid")
            flags = [*KINDS[kind], "-O1", "-g1", "-fno-omit-frame-pointer"]
            try:
                builder.compile_attention(library, extra=[*flags, "-DMLBACKENDS_EMULATED_PAIRS"])
                sources = [
                    "-x",
                    "c++",
                    "-std=c++17",
                    str(HERE / "attention_grid.cpp"),
                    "-x",
                    "none",
                ]
                include = f"-I{ROOT / 'kernels' / 'native' / 'attention'}"
                compiler = ["c++", "-pthread", *flags, include, *sources, str(library)]
                subprocess.run([*compiler, f"-Wl,-rpath,{folder}", "-o", str(program)], check=True)
            except (builder.NotCompiled, subprocess.CalledProcessError, OSError) as error:
                print(f"{kind}: not compiled: {error}", file=sys.stderr)
                return 2
            options = {"UBSAN_OPTIONS": "print_stacktrace=1", "TSAN_OPTIONS": "halt_on_error=1"}
            done = subprocess.run(
                [str(program), kind], env={**os.environ, **options}, check=False, timeout=900
            )
            print(f"{kind}: {'clean' if not done.returncode else f'ended with {done.returncode}'}")
            found |= int(done.returncode != 0)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
