"""Processors as products, and what their makers state of them: the rows of products.toml."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct, field

from mlbackends.base.tables import table

_FILE = "libraries/products.toml"
_MAKERS = re.compile(r"^(?:nvidia|tesla|amd|radeon|instinct|intel|apple|google|aws)\s+")
#: The kind of a device by its maker, where its target does not say it.
_KINDS = {"nvidia": "cuda", "amd": "rocm", "intel": "xpu", "apple": "mps", "google": "tpu", "aws": "neuron"}


class Product(Struct, frozen=True, kw_only=True):
    """A row. Sizes are in bytes, bandwidth in bytes a second, peaks in TFLOP/s without sparsity.

    products: a pattern of the driver's name for it, in lower case, without the maker. target: what code for
    it is compiled for. sms: streaming multiprocessors, compute units, cores or whatever its maker counts;
    what follows `sms` is of one. shared_per_block: the most that a block may ask for. derived: the element
    types whose peak no document states: the rate of a unit times units times clock. clocks: of a peak, where
    it is not clock_mhz.
    """

    name: str
    products: str
    vendor: str
    target: str
    sources: tuple[str, ...]
    sms: int | None = None
    threads_per_sm: int | None = None
    blocks_per_sm: int | None = None
    warps: int | None = None
    registers_per_sm: int | None = None
    shared_per_sm: int | None = None
    shared_per_block: int | None = None
    l2: int | None = None
    l3: int | None = None
    memory: int | None = None
    memory_kind: str = ""
    bandwidth: float | None = None
    clock_mhz: float | None = None
    watts: float | None = None
    peaks: Mapping[str, float] = field(default_factory=dict)
    peaks_float16_sums: Mapping[str, float] = field(default_factory=dict)
    clocks: Mapping[str, float] = field(default_factory=dict)
    per_clock: Mapping[str, float] = field(default_factory=dict)
    derived: tuple[str, ...] = ()
    instructions: tuple[str, ...] = ()
    notes: tuple[str, ...] | str = ()

    @property
    def kind(self) -> str:
        """The kind of device: cuda, rocm, ..., cpu."""
        if self.target in _CPUS:
            return "cpu"
        return "hpu" if self.target.startswith("gaudi") else _KINDS[self.vendor]

    @property
    def slug(self) -> str:
        """The name as it is typed: "geforce-rtx-4090"."""
        return re.sub("[^a-z0-9]+", "-", self.name.lower()).strip("-")

    def seconds(self, flops: float, moved: float, dtype: str) -> tuple[float, str] | None:
        """Return the least seconds for operations and bytes moved, and what limits it.

        None where the peak or the bandwidth is not known.
        """
        peak = self.peaks.get(dtype)
        if not peak or not self.bandwidth:
            return None
        times = {"arithmetic": flops / (peak * 1e12), "bandwidth": moved / self.bandwidth}
        limit = max(times, key=times.__getitem__)
        return times[limit], limit


_SERIES = re.compile("^(?:geforce|radeon|arcpro|arc)")
_CPUS = ("amx", "sve", "avx512-bf16")


@cache
def products() -> tuple[Product, ...]:
    """Return every row, with what its compute capability says where the row itself is silent."""
    data: dict[str, Any] = table(_FILE)
    sources = data["sources"]
    capabilities = data["capability"]
    rows = []
    for row in data["product"]:
        inherited = {
            name: value for name, value in capabilities.get(row["target"], {}).items() if name != "sources"
        }
        rows.append({**inherited, **row, "sources": [sources[name] for name in row["sources"]]})
    return tuple(msgspec.convert(rows, list[Product]))


def product_of(name: str) -> Product | None:
    """Return the row for the name that a driver prints or a person types, None for an unknown one."""
    text = " ".join(name.lower().split())
    short = _MAKERS.sub("", text)
    for row in products():
        is_named = text in (row.slug, row.name.lower())
        if is_named or re.fullmatch(row.products, short) or re.fullmatch(row.products, text):
            return row
    typed = _squeezed(short)
    return next((row for row in products() if typed and typed in _short_names(row)), None)


def products_like(name: str) -> list[str]:
    """Return the slugs of products whose names contain what a person has typed, such as "4090" or "a100"."""
    typed = _squeezed(_MAKERS.sub("", name.lower().strip()))
    return [row.slug for row in products() if len(typed) > 2 and typed in _squeezed(row.name)]


def _short_names(row: Product) -> list[str]:
    """Return a product's name without blanks, and without its series, its maker or what is in brackets."""
    names = map(_squeezed, (row.name, row.name.partition("(")[0]))
    return [short for name in names for short in (name, _SERIES.sub("", name))]


def _squeezed(text: str) -> str:
    return re.sub("[^a-z0-9]", "", text.lower())
