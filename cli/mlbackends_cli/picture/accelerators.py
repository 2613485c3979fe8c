"""The accelerators that the picture shows, each once, and what links them."""

from collections.abc import Mapping

from msgspec import Struct

from mlbackends.model.records import Device, Report
from mlbackends_cli import catalogue
from mlbackends_cli.picture.facts import index, number, numbers, rows, text
from mlbackends_cli.verdict import MARKS, state_of

MOST = 32
"""So many are drawn; how many more there are is told."""

_ALSO_SEEN_BY = {"opencl", "vulkan"}
"""Interfaces that see devices which have a kind of their own, and the CPU."""


class Part(Struct, frozen=True):
    """A MIG instance: its profile, and its memory."""

    name: str
    memory_bytes: int


class Accelerator(Struct, frozen=True):
    """One card. place: its NUMA node, None where it is not told. bus: how it is attached, in words."""

    probe: str
    index: int
    title: str
    state: str
    told: str
    bus: str
    place: int | None
    parts: tuple[Part, ...] = ()
    switch: bool = False
    links: int = 0


class Link(Struct, frozen=True):
    """What joins two accelerators directly, by their places in the list. count: 0 if not told."""

    one: int
    other: int
    kind: str
    count: int


class Accelerators(Struct, frozen=True):
    """All of it.

    hub: what joins the cards of `joined`, any two of them alike: a switch, or links between all.
    more: how many cards there are beside these.
    """

    cards: tuple[Accelerator, ...]
    links: tuple[Link, ...]
    hub: str
    joined: tuple[int, ...]
    more: int


def accelerators(report: Report) -> Accelerators:
    """Return what the picture shows of accelerators; it may be nothing."""
    chosen = _chosen(report)
    cards = [_card(probe, device, report) for probe, device in chosen]
    shown = tuple(cards[:MOST])
    links = tuple(_links(report, shown))
    hub, joined = _hub(report, shown, links)
    return Accelerators(shown, () if hub else links, hub, joined, len(cards) - len(shown))


def _hub(
    report: Report, cards: tuple[Accelerator, ...], links: tuple[Link, ...]
) -> tuple[str, tuple[int, ...]]:
    """Return what joins any two of some cards alike, and which; "" and () where nothing does."""
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
    many = f"{count} {kind}s" if count > 1 else kind
    return f"{many} between any two", ends


def _chosen(report: Report) -> list[tuple[str, Device]]:
    """Return each device by the probe that sees most of its kind, in the order of the report."""
    seen: dict[str, dict[str, list[Device]]] = {}
    for name, probe in report.probes.items():
        for device in probe.devices:
            if device.kind not in _ALSO_SEEN_BY | {"mig"}:
                seen.setdefault(device.kind, {}).setdefault(name, []).append(device)
    chosen = []
    for by_probe in seen.values():
        # NVML tells more of a GPU than the driver's other library, and knows where it is.
        best = max(by_probe, key=lambda name: (len(by_probe[name]), name == "nvidia"))
        chosen += [(best, device) for device in by_probe[best]]
    return chosen


def _card(probe: str, device: Device, report: Report) -> Accelerator:
    best = max(_same(device, report), key=lambda one: one.presence.rung)
    memory = device.memory_bytes or best.memory_bytes
    told = [catalogue.binary_size(memory)] if memory else []
    if capability := device.capability or best.capability:
        told.append(f"capability {capability}" if device.kind == "cuda" else capability)
    if report.probes[probe].facts.get("is_memory_shared") is True:
        told.append("shares the CPU's memory")
    switch = device.facts.get("nvlinks_lead_to_switch") is True
    links = number(device.facts, "nvlinks_active")
    if switch and links:
        told.append(f"{links} NVLinks")
    parts = tuple(
        Part(text(one.facts, "profile") or f"instance {one.index}", one.memory_bytes or 0)
        for one in report.probes[probe].devices
        if one.kind == "mig" and one.facts.get("parent") == device.index
    )
    if not told and device.driver:
        told.append(f"driver {device.driver}")
    state = state_of(best)
    if state == "broken" and best.reasons:
        told.append(best.reasons[0].message)
    return Accelerator(
        probe,
        device.index,
        f"{MARKS[state]} {device.kind} {device.index} {device.name or best.name}".rstrip(),
        state,
        " · ".join(told),
        _bus(device.facts),
        device.numa_node,
        parts,
        switch and bool(links),
        links,
    )


def _same(device: Device, report: Report) -> list[Device]:
    """Return every record of one device: the same kind, and the same PCI address or UUID."""
    same = [device]
    for probe in report.probes.values():
        for other in probe.devices:
            by_address = device.pci_address and other.pci_address == device.pci_address
            by_uuid = device.uuid and other.uuid == device.uuid
            if other.kind == device.kind and (by_address or by_uuid):
                same.append(other)
    return same


def _bus(facts: Mapping[str, object]) -> str:
    """Return a card's PCI Express link as the most that it can do: "PCIe 5 ×16"."""
    width = number(facts, "max_pcie_width")
    lanes = f" ×{width}" if width else ""
    if generation := number(facts, "max_pcie_generation"):
        return f"PCIe {generation}{lanes}"
    speed = facts.get("max_pcie_gigatransfers_per_second")
    if isinstance(speed, int | float) and 0 < speed < 1000:
        return f"PCIe {speed:g} GT/s{lanes}"
    return f"PCIe{lanes}" if lanes else ""


def _links(report: Report, cards: tuple[Accelerator, ...]) -> list[Link]:
    """Return the NVLinks of NVIDIA's GPUs, and the links of AMD's that are no PCI Express."""
    found = []
    place = {(card.probe, card.index): i for i, card in enumerate(cards)}
    for name, probe in report.probes.items():
        for row in rows(probe.facts, "topology"):
            pair, count = numbers(row, "gpus"), number(row, "nvlinks")
            ends = [place.get((name, gpu)) for gpu in pair]
            if len(ends) == 2 and None not in ends and ends[0] != ends[1] and count:
                found.append(Link(min(ends), max(ends), "NVLink", count))  # type: ignore[type-var, arg-type]
        for row in rows(probe.facts, "links"):
            one, other = index(row, "from"), index(row, "to")
            here, there = place.get((name, one or 0)), place.get((name, other or 0))
            kind = text(row, "kind")
            if None in (one, other, here, there) or kind in ("", "pcie", "other"):
                continue
            assert here is not None
            assert there is not None
            found.append(Link(min(here, there), max(here, there), kind, 0))
    return sorted(set(found), key=lambda link: (link.other - link.one, link.one))
