"""Compile flash_cuda's kernels ahead of time, by NVRTC and without a GPU.

``python kernels/builder/cubins.py`` writes attention_flash/cubins.xz and cubins.json, in some minutes.
``... --check [NAME...]`` compiles units again, all or those whose names begin so, such as sm_90/float16/64,
and tells where their machine code is not that of the archive.

It needs cuda-bindings, and NVRTC of the version in NVRTC. MLBACKENDS_OBJECTS names a folder in which what
was compiled for the archive stays, as it does for compilation.py.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import lzma
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[2] / each) for each in ("core", "kernels")]

from mlbackends_kernels.attention_flash import cubins, hopper, launches  # noqa: E402
from mlbackends_kernels.attention_flash.chips import CHIPS  # noqa: E402
from mlbackends_kernels.cuda import compiling  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The version whose machine code is kept: another writes other bytes.
NVRTC = (13, 5)
FOLDER = cubins.ARCHIVE.parent
ATTENTION = FOLDER.with_name("attention_cuda") / "attention.cu"
#: Neighbouring instructions of 16 bytes are alike at the same place.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 0, "pb": 4}]


class Unit(NamedTuple):
    """What is compiled at once: a file for a target, and its kernels with their blocks."""

    source: Path
    target: str
    dtype: str
    width: int
    definitions: dict[str, str]
    kernels: dict[str, launches.Block]

    @property
    def name(self) -> str:
        """Its name in cubins.json."""
        return cubins.unit(self.target, self.dtype, self.width)

    @property
    def stream(self) -> tuple[int, int]:
        """What it shares a stream with: the generation, 9 of sm_90a, and the width."""
        return int(self.target[3:].rstrip("af")) // 10, self.width


def units() -> list[Unit]:
    """Return all units, those of a stream one after the other."""
    found = [
        Unit(
            FOLDER / "flash.cu",
            f"sm_{chip}",
            dtype,
            width,
            launches.definitions(dtype, width, chip),
            {name: launches.block_of(name, width, chip) for name in launches.kernels(width)},
        )
        for chip in CHIPS
        for width in launches.WIDTHS
        for dtype in launches.ARITHMETICS
    ]
    found += [
        Unit(
            FOLDER / "hopper.cu",
            hopper.TARGET,
            dtype,
            width,
            hopper.definitions(dtype, width),
            {name: hopper.block_of(tile) for name, tile in hopper.tiles(dtype, width).items()},
        )
        for width in hopper.WIDTHS
        for dtype in launches.ARITHMETICS
    ]
    return sorted(found, key=lambda each: each.stream)


def compiled(unit: Unit) -> tuple[bytes, dict[str, dict[str, int]]]:
    """Return the cubin of a unit and the record of each of its kernels."""
    cubin, log = compiling.compiled(unit.source, _options(unit))
    return cubin, _records(unit, log)


def cached(unit: Unit) -> tuple[bytes, dict[str, dict[str, int]]]:
    """Return what `compiled` does, from MLBACKENDS_OBJECTS where it is there."""
    folder = os.environ.get("MLBACKENDS_OBJECTS", "")
    if not folder:
        return compiled(unit)
    parts = fingerprint(unit.source), NVRTC, unit.name, unit.definitions
    name = hashlib.sha256(repr(parts).encode()).hexdigest()
    cubin, log = (Path(folder) / f"{name}.{ending}" for ending in ("cubin", "log"))
    if not log.exists():
        code, text = compiling.compiled(unit.source, _options(unit))
        cubin.write_bytes(code)
        log.write_text(text, encoding="utf-8")
    return cubin.read_bytes(), _records(unit, log.read_text(encoding="utf-8"))


def _options(unit: Unit) -> list[str]:
    return [
        f"--gpu-architecture={unit.target}",
        "--std=c++17",
        "--ptxas-options=-v",
        f"-I{unit.source.parent}",
        *(f"-D{name}={value}" for name, value in unit.definitions.items()),
    ]


def _records(unit: Unit, log: str) -> dict[str, dict[str, int]]:
    arguments: Any = hopper if unit.source.name == "hopper.cu" else launches
    return {
        name: {
            "threads": block.threads,
            "shared": block.shared,
            **_figures(name, log),
            "parameters": ctypes.sizeof(getattr(arguments, block.argument)),
        }
        for name, block in unit.kernels.items()
    }


def _figures(kernel: str, log: str) -> dict[str, int]:
    part = log.partition(f"entry function '{kernel}'")[2].partition("Compiling entry")[0]
    (registers,) = re.findall(r"Used (\d+) registers", part)
    spilled = [int(each) for each in re.findall(r"(\d+) bytes spill", part)]
    return {"registers": int(registers), "spilled": max(spilled)}


def fingerprint(source: Path) -> str:
    """Return a checksum of a file and of attention.cu, without comments: what is compiled."""
    texts = [each.read_text(encoding="utf-8") for each in (ATTENTION, source)]
    plain = [" ".join(re.sub(r"//.*", "", text).split()) for text in texts]
    return hashlib.sha256("\0".join(plain).encode()).hexdigest()


def write() -> None:
    """Compile all, and write the archive and its records."""
    everything, at = units(), 0
    records: dict[str, Any] = {}
    with ProcessPoolExecutor(os.cpu_count()) as workers, cubins.ARCHIVE.open("wb") as archive:
        results = zip(everything, workers.map(cached, everything), strict=True)
        for _, members in groupby(results, key=lambda each: each[0].stream):
            stream, places = b"", {}
            for unit, (cubin, kernels) in members:
                print(unit.name, len(cubin), flush=True)
                places[unit.name] = {
                    "place": [len(stream), len(cubin)],
                    "sha256": hashlib.sha256(cubin).hexdigest(),
                    "kernels": kernels,
                }
                stream += cubin
            packed = lzma.compress(stream, lzma.FORMAT_XZ, filters=_FILTERS)
            archive.write(packed)
            records |= {
                name: {"stream": [at, len(packed)], **each} for name, each in places.items()
            }
            at += len(packed)
    sources = {
        each.name: fingerprint(each) for each in sorted({each.source for each in everything})
    }
    about = {"nvrtc": ".".join(map(str, NVRTC)), "sources": sources, "units": records}
    cubins.RECORDS.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def differences(names: Iterable[str] = ()) -> list[str]:
    """Compile units again and return the names of those that are not as the archive has them."""
    prefixes = tuple(names)
    chosen = [each for each in units() if not prefixes or each.name.startswith(prefixes)]
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        results = zip(chosen, workers.map(compiled, chosen), strict=True)
        return [
            unit.name
            for unit, (cubin, kernels) in results
            if cubin != cubins.machine_code(unit.name)
            or kernels != cubins.records()[unit.name]["kernels"]
        ]


def main() -> int:
    """Compile, and write or compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", nargs="*", metavar="NAME")
    names: Any = parser.parse_args().check
    if (version := compiling.nvrtc_version()) != NVRTC:
        parser.error(f"NVRTC is {version}; the archive is made by {NVRTC}")
    if names is None:
        write()
        return 0
    different = differences(names)
    print("\n".join(f"{each} is not as the archive has it" for each in different) or "all as kept")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
