"""The accelerators that the picture of the machine shows, each once, and what links them."""

from msgspec import Struct

from mlbackends.model.records import Device, Report
from mlbackends_cli.report.probes import MARKS, state_of
from mlbackends_cli.report.processors import number, numbers, rows, text
from mlbackends_cli.text.plain import binary_size

_MOST = 32
#: Interfaces that see devices of other kinds and the CPU; and parts of a device.
_NO_KIND_OF_THEIR_OWN = {"opencl", "vulkan", "mig"}


class Accelerator(Struct, frozen=True):
    """One card. node: its NUMA node, None if unknown. bus: its connection, in words.

    parts: its MIG instances, as profile and size.
    """

    probe: str
    index: int
    title: str
    state: str
    about: str
    bus: str
    node: int | None
    parts: tuple[tuple[str, str], ...] = ()
    switch: bool = False
    links: int = 0


class Link(Struct, frozen=True):
    """What joins two accelerators directly, by their places in the list. count: 0 if not known."""

    one: int
    other: int
    kind: str
    count: int


class Accelerators(Struct, frozen=True):
    """All of it.

    hub: what joins the cards of `joined`, any two of them alike: a switch, or links between all.
    more: the number of further cards.
    """

    cards: tuple[Accelerator, ...]
    links: tuple[Link, ...]
    hub: str
    joined: tuple[int, ...]
    more: int


def accelerators(report: Report) -> Accelerators:
    """Return what the picture shows of accelerators; it may be nothing."""
    by_title: dict[str, dict[str, list[Device]]] = {}
    for name, probe in report.probes.items():
        for device in probe.devices:
            if device.kind not in _NO_KIND_OF_THEIR_OWN:
                by_title.setdefault(device.kind, {}).setdefault(name, []).append(device)
    cards = []
    for by_probe in by_title.values():
        # The probe that sees most of a kind. NVML has more of a GPU than the driver's other library.
        best = max(by_probe, key=lambda name: (len(by_probe[name]), name == "nvidia"))
        cards += [_card(best, device, report) for device in by_probe[best]]
    shown = tuple(cards[:_MOST])
    links = tuple(_links(report, shown))
    hub, joined = _hub(report, shown, links)
    return Accelerators(shown, () if hub else links, hub, joined, len(cards) - len(shown))


def _card(probe: str, device: Device, report: Report) -> Accelerator:
    # Every record of one device has its kind, and its PCI address or UUID.
    names = {(device.kind, each) for each in (device.pci_address, device.uuid) if each}
    everyone = (other for probe in report.probes.values() for other in probe.devices)
    same = (
        other
        for other in everyone
        if {(other.kind, other.pci_address), (other.kind, other.uuid)} & names
    )
    best = max([device, *same], key=lambda one: one.presence.level)
    state = state_of(best)
    memory = device.memory_bytes or best.memory_bytes
    capability = device.capability or best.capability
    links = number(device.facts, "nvlinks_active")
    switch = bool(links) and device.facts.get("nvlinks_lead_to_switch") is True
    about = [binary_size(memory)] if memory else []
    if capability:
        about.append(f"capability {capability}" if device.kind == "cuda" else capability)
    if report.probes[probe].facts.get("is_memory_shared") is True:
        about.append("shares the CPU's memory")
    about += [f"{links} NVLinks"] if switch else []
    if not about and device.driver:
        about.append(f"driver {device.driver}")
    if state == "broken" and best.reasons:
        about.append(best.reasons[0].message)
    # The most that its link can do: "PCIe 5 ×16".
    width, speed = number(device.facts, "max_pcie_width"), ""
    rate = device.facts.get("max_pcie_gigatransfers_per_second")
    if generation := number(device.facts, "max_pcie_generation"):
        speed = f"{generation}"
    elif isinstance(rate, int | float) and 0 < rate < 1000:
        speed = f"{rate:g} GT/s"
    bus = ["PCIe", speed, f"×{width}" if width else ""] if width or speed else []
    return Accelerator(
        probe,
        device.index,
        f"{MARKS[state]} {device.kind} {device.index} {device.name or best.name}".rstrip(),
        state,
        " · ".join(about),
        " ".join(filter(None, bus)),
        device.numa_node,
        tuple(
            (
                text(one.facts, "profile") or f"instance {one.index}",
                binary_size(one.memory_bytes) if one.memory_bytes else "",
            )
            for one in report.probes[probe].devices
            if one.kind == "mig" and one.facts.get("parent") == device.index
        ),
        switch,
        links,
    )


def _links(report: Report, cards: tuple[Accelerator, ...]) -> list[Link]:
    """Return the NVLinks of NVIDIA's GPUs, and the links of AMD's GPUs other than PCI Express."""
    place = {(card.probe, card.index): i for i, card in enumerate(cards)}
    found = set()
    for name, probe in report.probes.items():
        joined = [
            (numbers(row, "gpus"), "NVLink", number(row, "nvlinks"))
            for row in rows(probe.facts, "topology")
            if number(row, "nvlinks")
        ]
        joined += [
            (numbers({"ends": [row.get("from"), row.get("to")]}, "ends"), text(row, "kind"), 0)
            for row in rows(probe.facts, "links")
            if text(row, "kind") not in ("", "pcie", "other")
        ]
        for devices, kind, count in joined:
            ends = sorted({place[name, i] for i in devices if (name, i) in place})
            if len(devices) == len(ends) == 2:
                found.add(Link(ends[0], ends[1], kind, count))
    return sorted(found, key=lambda each: (each.other - each.one, each.one, each.kind, each.count))


def _hub(
    report: Report, cards: tuple[Accelerator, ...], links: tuple[Link, ...]
) -> tuple[str, tuple[int, ...]]:
    """Return the link that all pairs of some cards share, and the cards; "" and () if there is none."""
    if switched := tuple(i for i, card in enumerate(cards) if card.switch):
        nvidia = report.probes.get("nvidia")
        count = number(nvidia.facts, "nvswitches") if nvidia else 0
        return (f"{count} NVSwitches" if count > 1 else "NVSwitch"), switched
    ends = tuple(sorted({end for link in links for end in (link.one, link.other)}))
    kinds = {(link.kind, link.count) for link in links}
    pairs = {(link.one, link.other) for link in links}
    if len(ends) < 4 or len(kinds) != 1 or len(pairs) != len(ends) * (len(ends) - 1) // 2:
        return "", ()
    kind, count = kinds.pop()
    return f"{f'{count} {kind}s' if count > 1 else kind} between any two", ends
