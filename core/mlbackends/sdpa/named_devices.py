"""Devices by name, so that a problem can be explained for a device that this machine does not have.

`cpu` and `cuda` are this machine's own; libraries/device_names.json has the others, with their sources.
"""

import re
from contextlib import suppress

from msgspec import Struct

from mlbackends.base.errors import BadInput, UnknownName, did_you_mean, nearest
from mlbackends.libraries.device_names import device_of_product, rows
from mlbackends.libraries.products import Product, product_of, products, products_like
from mlbackends.model.records import Device, Presence

HERE = {"cpu": "this machine's CPUs", "cuda": "this machine's first CUDA device"}


class NamedDevice(Struct, frozen=True):
    """A device with a name. title: a description. source: of its record; "" for a device of this machine."""

    name: str
    device: Device
    title: str
    source: str = ""

    @property
    def here(self) -> bool:
        """Whether it is a device of this machine."""
        return not self.source


#: The devices that this machine need not have.
NAMED = {row.name: NamedDevice(row.name, row.device, row.title, row.source) for row in rows()}

#: The GPUs among them that torch's own kernels may support.
GPUS = tuple(name for name, row in NAMED.items() if row.device.kind in ("cuda", "rocm"))

#: Making a context takes some 100 ms on each device, and seconds without persistence mode.
_DRIVER_SECONDS = 30.0
_LIST = "backends sdpa list --devices"
_MOST_LIKE = 4
#: Every name that `device` accepts.
NAMES = (*HERE, *NAMED)


#: The products in the titles, as they are typed: h100, rtx 50 series.
_PRODUCTS = tuple(
    product
    for row in rows()
    if row.products
    for product in re.split(", | and ", row.title.lower().partition(": ")[2])
    if product
)


def canonical(name: str) -> str:
    """Return the name in NAMES, or "cuda:N", for sm_90, cuda:sm90, 9.0, h100 or RTX 4090.

    Names that drivers print, such as "NVIDIA H100 80GB HBM3", are accepted too. Raises UnknownName, with the
    nearest names.
    """
    text = name.lower().strip()
    if text in NAMES or re.fullmatch("cuda:[0-9]{1,3}", text):
        return "cuda" if text == "cuda:0" else text
    text = re.sub(r"^(?:cuda|rocm|hip)[:\s]+", "", text)
    short = re.sub(r"[\s_]", "", text)
    if short.startswith("gfx"):  # gfx90a:sramecc+:xnack-
        short = short.partition(":")[0]
    number = re.fullmatch(r"(?:sm|compute)?([0-9]{1,2})\.?([0-9])[af]?", short)
    for candidate in (short, f"sm{number[1]}{number[2]}" if number else ""):
        if candidate in NAMED:
            return candidate
    if product := product_of(text):
        return product.slug
    target = f"{number[1]}.{number[2]}" if number else short
    if len(slugs := [row.slug for row in products() if row.target == target]) == 1:
        return slugs[0]  # gfx1250, of which one product is known
    if row := device_of_product(text):
        return row.name
    if 0 < len(like := products_like(text)) <= _MOST_LIKE:
        error = UnknownName("device", name, ())
        error.hint = did_you_mean(like)
        raise error
    # One character too many or too few is a slip; another number is another product.
    if (near := nearest(text, _PRODUCTS)) and len(near[0]) != len(text):
        error = UnknownName("device", name, ())
        error.hint = did_you_mean(near[:1])
        raise error
    letters = re.match("[a-z]*", text)
    alike = tuple(n for n in NAMES if letters and letters[0] and n.startswith(letters[0]))
    error = UnknownName("device", name, alike, _LIST)
    if not error.hint.startswith("did"):
        error.hint = f"`{_LIST}` lists all devices"
        if name.lower().lstrip().startswith("cuda:"):
            error.hint += "; cuda:1 is this machine's second CUDA device"
    raise error


def products_by_target() -> dict[str, list[str]]:
    """Return the slugs of products by what their code is compiled for, such as "cuda 9.0"."""
    slugs: dict[str, list[str]] = {}
    for row in products():
        slugs.setdefault(f"{row.kind} {row.target}", []).append(row.slug)
    return slugs


def _of_product(product: Product) -> NamedDevice:
    """Return a product as a device; what it computes is that of its compute capability, where it has one."""
    device = Device(product.kind, 0, name=product.name, capability=product.target)
    short = f"sm{product.target.replace('.', '')}" if product.kind == "cuda" else product.target
    return NamedDevice(product.slug, device, f"{product.name}, {short}", product.sources[0])


def named(name: str) -> NamedDevice | None:
    """Return a device that this machine need not have, by what `canonical` returns; None for another one."""
    if name in NAMES:
        return NAMED.get(name)
    product = product_of(name)
    return _of_product(product) if product else None


def usual_dtype(name: str) -> str:
    """Return the element type of problems on a device: the fast backends of GPUs compute 16 bits only."""
    found = named(name)
    kind = found.device.kind if found else name.partition(":")[0]
    if kind not in ("cuda", "rocm"):
        return "float32"
    is_old = bool(found and kind == "cuda" and float(found.device.capability) < 8)
    return "float16" if is_old else "bfloat16"


def option_for(word: str) -> str:
    """Return the option that names a device, such as "--device t4", "" for a word that is not a device."""
    with suppress(UnknownName):
        canonical(word)
        return f"--device {word.lower()}"
    return ""


def device(name: str) -> NamedDevice:
    """Return a device by any of its names.

    Raises UnknownName as `canonical` does, BadInput for "cuda" on a machine without such a device.
    """
    name = canonical(name)
    if found := named(name):
        return found
    if name == "cpu":
        return NamedDevice(name, Device("cpu", 0), HERE[name])
    index = int(name.partition(":")[2] or 0)
    from mlbackends.host.host import Host
    from mlbackends.survey import survey

    # A child process asks the driver, and checks that each device computes.
    report = survey(("cuda_driver",), Host("/"), Presence.USABLE, timeout=_DRIVER_SECONDS)
    probe = report.probes["cuda_driver"]
    devices = {gpu.index: gpu for gpu in probe.devices if gpu.capability}
    if index not in devices:
        because = f": {probe.reasons[0].message}" if probe.reasons else ""
        hint = "name a device that this machine does not have, such as --device h100"
        position = f" {index}" if devices else ""
        raise BadInput(f"this machine has no CUDA device{position}{because}", hint)
    return NamedDevice(name, devices[index], HERE["cuda"] if not index else f"its CUDA device {index}")
