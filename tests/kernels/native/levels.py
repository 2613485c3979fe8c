"""Say which levels a CPU has, and check a built library: ``python tests/kernels/native/levels.py [FLAG]...``.

Run it by the Python in which the library is installed. The flags are those of /proc/cpuinfo, by default of
this machine's; for a Python that cannot read them, as under Wine, they are named.

Ends with 0 where the library runs every level that the CPU has, 1 where it does not.
"""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What each level needs beside those before it.
FLAGS = {
    "avx2": {"avx2", "fma", "f16c"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    "avx512_bf16": {"avx512_bf16"},
    "amx_bf16": {"amx_bf16", "amx_tile"},
}


def flags_here() -> set[str]:
    """Return the flags of this machine's CPU, as Linux has them."""
    text = Path("/proc/cpuinfo").read_text("utf-8", "replace")
    found = re.search(r"^(?:flags|Features)\s*: (.*)", text, re.MULTILINE)
    return set(found[1].split()) if found else set()


def expected_levels(machine: str, flags: Iterable[str]) -> tuple[str, ...]:
    """Return the levels of a CPU, the least one first, without those of SVE, whose length no flag tells."""
    if machine.lower() in {"aarch64", "arm64"}:
        return ("neon", "neon_bf16") if "bf16" in flags else ("neon",)
    levels = ["baseline"]
    if machine.lower() in {"x86_64", "amd64"}:
        for level, needed in FLAGS.items():
            if not needed <= set(flags):
                break
            levels.append(level)
    return tuple(levels)


def wrong_levels(flags: Iterable[str] = ()) -> str:
    """Return what is wrong with the installed library's levels, "" where nothing is. Raises NotBuilt."""
    from mlbackends_kernels.attention_cpu import library

    expected = expected_levels(platform.machine(), flags or flags_here())
    found = tuple(name for name in library.usable_levels() if not name.startswith("sve"))
    if found != expected:
        return f"{library.path()} runs {', '.join(found)}; this CPU has {', '.join(expected)}"
    return ""


if __name__ == "__main__":
    wrong = wrong_levels(sys.argv[1:])
    print(wrong or "it runs every level that this CPU has")
    sys.exit(bool(wrong))
