"""`backends info --device`: a device that this machine need not have, and what torch supports there."""

from typing import Any

from mlbackends.base.errors import BadInput
from mlbackends.model.explanation import DescribedDevice
from mlbackends.sdpa import explaining, named_devices
from mlbackends_cli import exits, formats
from mlbackends_cli.attention.explain_page import matrix_markdown, matrix_text
from mlbackends_cli.attention.options import versions_of
from mlbackends_cli.options import typed
from mlbackends_cli.terminal import Page
from mlbackends_cli.text import plain
from mlbackends_cli.text.plain import Passage, binary_size

_WITH_DEVICE = {"device", "torch", "cudnn", "cuda", "rocm", "driver", "form", "output", "color"}


def show(name: str, versions: dict[str, Any], form: str, output: str, color: str) -> int:
    """Write what is stated of a device. Raises BadInput, and UnknownName for no device."""
    for parameter, typed_option in typed().items():
        if parameter not in _WITH_DEVICE:
            raise BadInput("--device describes a device, without this machine", f"leave {typed_option} out")
    own = {"table": printed, "markdown": markdown}
    if form not in own and not formats.has(form, "record"):
        raise BadInput(f"--device has no format {form}", "use table, markdown or json")
    torch, others = versions_of(versions)
    place = named_devices.device(name)
    if place.here:
        raise BadInput(
            f"{place.name} is of this machine", "leave --device out, or name a product such as h100"
        )
    described = explaining.described(place, torch, others)
    formats.show(described, own, form=form, output=output, color=color)
    return exits.YES


def _passages(described: DescribedDevice) -> list[Passage]:
    stated = {key: value for key, value in described.product.items() if key not in ("name", "products")}
    stated |= {"sources": stated.pop("sources")} if stated else {}  # last
    lines = tuple((key.replace("_", " "), _text(key, value)) for key, value in stated.items())
    found = [Passage(f"{described.device}: {described.title}", lines)]
    problems = described.torch.problems
    reasons = (reason for each in problems for verdict in each.torch_verdicts for reason in verdict.reasons)
    notes = [note for each in problems for note in each.version_notes]
    notes += [reason.message for reason in reasons if reason.code == "driver-too-old"]
    return (
        [*found, Passage("Versions", tuple(("", note) for note in dict.fromkeys(notes)))] if notes else found
    )


def _text(name: str, value: Any) -> str:
    if isinstance(value, dict):
        unit = " TFLOP/s" if name.startswith("peaks") else ""
        return ", ".join(f"{key} {each:,g}" for key, each in value.items()) + unit
    if isinstance(value, (list, tuple)):
        return "; ".join(value)
    if name == "bandwidth":
        return f"{value / 1e9:,.0f} GB/s"
    is_size = name in ("l2", "l3", "memory") or name.startswith("shared_per")
    return binary_size(value) if is_size else f"{value:,g}" if isinstance(value, float) else str(value)


def printed(described: DescribedDevice, page: Page) -> str:
    """Return the product, what the versions mean and what torch supports, for a terminal."""
    return f"{plain.printed(_passages(described), page)}\n{matrix_text(described.torch, page)}"


def markdown(described: DescribedDevice, page: Page) -> str:
    """Return the same as Markdown."""
    return f"{plain.passages_markdown(_passages(described))}\n{matrix_markdown(described.torch, page)}"
