"""What makers state of their GPUs: the peak of dense products by element type, and the memory's bandwidth."""

import re

from msgspec import Struct, convert
from msgspec.structs import replace

from mlbackends.base.tables import table
from mlbackends.model.checked import DeviceSpeeds
from mlbackends.model.problem import AttentionProblem
from mlbackends.switches import store


class Chip(Struct, frozen=True):
    """A row of chips.json. products: a pattern of what the driver calls it, in small letters.

    peaks: by element type, TFLOP/s and the clock in MHz that they are stated for, 0 where none is; "tf32"
    is float32 by tensor cores.
    """

    name: str
    products: str
    peaks: dict[str, tuple[float, int]]
    gigabytes_per_second: float
    source: str


def chip(name: str) -> Chip | None:
    """Return the row of a device by the driver's name for it, None where there is none."""
    product = re.sub(r"^(?:nvidia|tesla)\s+", "", " ".join(name.lower().split()))
    rows = convert(table("sdpa/verify/chips"), tuple[Chip, ...])
    return next((each for each in rows if re.fullmatch(each.products, product)), None)


def stated_speeds(problem: AttentionProblem, speeds: DeviceSpeeds) -> DeviceSpeeds:
    """Return speeds with what the maker of a problem's device states; a part of a GPU has no row."""
    found = chip(problem.device.name) if problem.device.kind == "cuda" else None
    if found is None:
        name = problem.device.name or "this device"
        return replace(speeds, stated_by=f"what {name} should reach is not written down here")
    is_tf32 = store.read("cuda.matmul.fp32_precision") == "tf32"
    element = "tf32" if problem.dtype == "float32" and is_tf32 else problem.dtype
    tflops, clock = found.peaks.get(element, (None, 0))
    at = f"at {clock} MHz" if clock else "its clock is not stated"
    return replace(
        speeds,
        stated_gflops=tflops * 1e3 if tflops else None,
        stated_bytes_per_second=found.gigabytes_per_second * 1e9,
        stated_by=f"{found.name}, {element}, {at}: {found.source}",
    )
