"""The HTML page: whole, harmless whatever a report holds, with a picture that tells only what is known."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from running import Reader, report

from mlbackends.base import registry
from mlbackends.host.host import Host
from mlbackends.model.records import Presence, Report
from mlbackends.survey import survey
from mlbackends_cli.terminal import Page

HOSTS = Path(__file__).resolve().parents[1] / "hosts"
GIB = 1 << 30
HOSTILE = (
    "</title></style></script></svg><script>alert(1)</script>"
    "\"><img src=x onerror=alert(1)> ' & ]]> \x00\x1b[31m\u202e\ud800\n::error::x"
)


def cpu(**facts: Any) -> dict[str, Any]:
    return {"presence": "found", "facts": {"model_name": "Test CPU", **facts}}


def cache(level: int, kind: str, size: int, instances: int, shared: int) -> dict[str, Any]:
    return {
        "level": level,
        "type": kind,
        "size_bytes": size,
        "instances": instances,
        "shared_by_cpus": shared,
    }


def gpu(index: int, node: int | None = None, **more: Any) -> dict[str, Any]:
    facts = {"max_pcie_generation": 5, "max_pcie_width": 16, **more.pop("facts", {})}
    return {
        "kind": "cuda",
        "index": index,
        "name": "NVIDIA H200",
        "presence": "loadable",
        "memory_bytes": 141 * GIB,
        "numa_node": node,
        "facts": facts,
        **more,
    }


def two_sockets(**more: Any) -> dict[str, Any]:
    """56 cores of two threads in each of two sockets, each with its memory."""
    return cpu(
        sockets=2,
        cores=112,
        threads=224,
        online_cpus="0-223",
        caches=[
            cache(1, "data", 48 << 10, 112, 2),
            cache(2, "unified", 2 << 20, 112, 2),
            cache(3, "unified", 105 << 20, 2, 112),
        ],
        numa_nodes=[
            {"node": 0, "cpus": "0-55,112-167", "memory_bytes": 512 * GIB, "distances": [10, 21]},
            {"node": 1, "cpus": "56-111,168-223", "memory_bytes": 256 * GIB, "distances": [21, 10]},
        ],
        **more,
    )


def rendered(one: Report, **page: Any) -> str:
    return str(registry.load("mlbackends_cli.formats", "html").report(one, Page(**page)))


def pictures(page: str) -> list[ET.Element]:
    parts = page.split('<figure class="machine"')[1:]
    return [ET.fromstring("<figure " + part.partition("</figure>")[0] + "</figure>") for part in parts]


def words(picture: ET.Element) -> list[str]:
    """Return each line of text, but for hints and what narrow pages show a second time."""
    found = []
    for part in picture.iter():
        pieces = [piece.tag == "span" and part.get("class") == "small" for piece in part]
        if (part.text and part.tag != "title") or any(pieces):
            found.append("".join(part.itertext()))
    narrow = ["".join(part.itertext()) for part in picture.iter() if "narrow" in part.get("class", "")]
    for rule in narrow:
        found.remove(rule)
    return found


def drawn(one: Report) -> list[str]:
    """Return the words on the picture."""
    return words(pictures(rendered(one))[0])


# ---- the page --------------------------------------------------------------------------------


EIGHT_GPUS = report(
    cpu=two_sockets(),
    nvidia={
        "presence": "loadable",
        "version": "570.86",
        "facts": {
            "gpu_count": 8,
            "topology": [{"gpus": [a, b], "path": "x"} for a in range(8) for b in range(a)],
        },
        "devices": [gpu(i, i // 4) for i in range(8)],
        "warnings": [{"code": "ecc-errors", "message": "GPU 0 had errors", "hint": "reset it"}],
    },
    cudnn={
        "presence": "found",
        "version": "9.10",
        "libraries": [{"name": "cudnn", "path": "/x/libcudnn.so.9", "owner": "wheel 9.10"}],
        "reasons": [{"code": "dlopen-failed", "message": "it does not open", "hint": "install"}],
    },
    mkl={"presence": "absent", "reasons": [{"code": "not-found", "message": "looked in /x"}]},
    openmp={"presence": None, "failure": {"message": "KeyError: 'x'"}},
)


@pytest.mark.parametrize("details", [False, True])
def test_every_element_is_closed_and_every_anchor_is_there(details: bool) -> None:
    reader = Reader(rendered(EIGHT_GPUS, details=details))

    targets = {(v or "")[1:] for n, v in reader.attributes if n == "href"}
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert targets <= set(reader.ids)
    assert {"probe-nvidia", "probe-cudnn"} <= targets


def test_the_page_needs_nothing_but_itself() -> None:
    page = rendered(EIGHT_GPUS)
    reader = Reader(page)

    assert not {"src", "srcset", "action", "style"} & {name for name, _ in reader.attributes}
    assert not {"link", "iframe", "img", "object", "base"} & set(reader.tags)
    assert all((v or "").startswith("#") for n, v in reader.attributes if n == "href")
    assert "@import" not in page and "url(" not in page


def test_the_policy_names_the_script_and_the_style_that_are_there() -> None:
    import base64
    import hashlib

    page = rendered(EIGHT_GPUS)
    for tag in ("script", "style"):
        inside = page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{tag}-src &#x27;sha256-{digest}&#x27;" in page


def test_what_is_broken_stands_first_with_its_cure_and_torch_before_other_packages() -> None:
    packages = {name: {"presence": "found", "version": "1"} for name in ("jax", "torch")}
    broken = {"presence": "found", "reasons": [{"code": "x", "message": "no", "hint": "mend it"}]}
    page = rendered(report(**packages, cudnn=broken, mkl={"presence": "absent"}))
    problems = page.partition('id="problems"')[2].partition("</section>")[0]
    listed = page.partition('id="packages"')[2].partition("</section>")[0]

    assert '<span class="severity high">broken</span>' in problems and "mend it" in problems
    assert listed.index("#probe-torch") < listed.index("#probe-jax")
    assert "<strong>1 more was not found</strong>" in page


def test_hostile_text_stays_text() -> None:
    reason = {"code": HOSTILE, "message": HOSTILE, "hint": HOSTILE}
    one = report(
        cpu=cpu(threads=8, cores=4, model_name=HOSTILE, offline_cpus=HOSTILE),
        nvidia={
            "presence": "loadable",
            "version": HOSTILE,
            "facts": {HOSTILE: HOSTILE, "rows": [{HOSTILE: HOSTILE}]},
            "devices": [gpu(0, name=HOSTILE, capability=HOSTILE, reasons=[reason])],
            "libraries": [{"name": HOSTILE, "path": HOSTILE, "reasons": [reason]}],
            "warnings": [reason],
            "source": HOSTILE,
        },
        **{f"probe {HOSTILE}": {"presence": "found", "version": HOSTILE, "reasons": [reason]}},
    )
    page = rendered(one, details=True)
    reader = Reader(page)

    assert reader.open == []
    assert reader.tags.count("script") == 1
    assert "img" not in reader.tags
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    assert not set(page) & {"\x00", "\x1b", "\u202e", "\ud800"}
    assert "\n::error::" not in page  # a page on standard output, in CI
    assert len(pictures(page)) == 1


def test_an_endless_report_stays_readable() -> None:
    one = report(
        cpu=two_sockets(features=["avx"] * 100_000),
        torch={
            "presence": "usable",
            "facts": {"rows": [{"a": i, "b": "x" * 50} for i in range(10_000)]},
            "libraries": [{"name": "x", "path": f"/lib/{i}"} for i in range(1000)],
        },
    )

    page = rendered(one)
    assert len(page.encode()) < 400_000
    assert "and 9800 more" in page and "and 800 more copies" in page


@pytest.mark.parametrize("name", sorted(path.stem for path in HOSTS.glob("*.machine")))
def test_every_recorded_machine_has_a_page_and_a_picture(name: str) -> None:
    one = survey((), Host(str(HOSTS / f"{name}.machine")), Presence.FOUND)
    page = rendered(one, details=True)

    assert Reader(page).open == []
    assert len(page.encode()) < 400_000
    assert len(pictures(page)) == 1
    assert [line for line in drawn(one) if "core" in line or "thread" in line]


# ---- the picture -----------------------------------------------------------------------------


def test_without_facts_of_cores_there_is_no_picture() -> None:
    assert pictures(rendered(report(cpu=cpu()))) == []
    assert pictures(rendered(report())) == []


def test_each_socket_has_its_node_with_cores_caches_and_memory() -> None:
    said = drawn(report(cpu=two_sockets()))

    assert said.count("socket") == 2
    assert "NUMA node 0 · 56 cores · 112 threads" in said
    assert said.count("each core: L1d 48 KiB · L2 2 MiB") == 2
    assert said.count("L3 105 MiB") == 2
    assert "memory 512 GiB" in said and "memory 256 GiB" in said


def nodes(count: int, cpus: int, near: int) -> list[dict[str, Any]]:
    return [
        {
            "node": i,
            "cpus": f"{i * cpus}-{i * cpus + cpus - 1}",
            "distances": [10 if i == j else 12 if i // near == j // near else 32 for j in range(count)],
        }
        for i in range(count)
    ]


def test_nodes_are_put_into_sockets_by_their_distances() -> None:
    l3 = [cache(3, "unified", 32 << 20, 2, 32)]
    one = report(cpu=cpu(sockets=2, cores=64, threads=64, numa_nodes=nodes(8, 8, 4), caches=l3))
    said = drawn(one)

    assert said.count("socket · 32 cores") == 2
    # Each L3 serves a whole socket, so it is drawn around its four nodes.
    assert said.count("L3 32 MiB") == 2
    assert "which NUMA node is in which socket is not known" not in said


def test_a_node_without_cpus_is_memory_of_its_own() -> None:
    listed = [
        {"node": 0, "cpus": "0-3"},
        {"node": 1, "cpus": "", "memory_bytes": 96 * GIB},
        {"node": 2, "cpus": ""},
    ]
    said = drawn(report(cpu=cpu(sockets=1, cores=4, threads=4, numa_nodes=listed)))

    assert "memory without CPUs" in said and "memory 96 GiB" in said
    assert "NUMA node 2" not in said


def test_kinds_of_core_have_their_own_caches() -> None:
    kinds = [
        {"name": "performance", "threads": 16, "cores": 8, "cpus": "0-15"},
        {"name": "efficiency", "threads": 16, "cores": 16, "cpus": "16-31"},
    ]
    caches = [
        cache(1, "data", 48 << 10, 8, 2) | {"kind": "performance"},
        cache(1, "data", 32 << 10, 16, 1) | {"kind": "efficiency"},
        cache(2, "unified", 2 << 20, 8, 2) | {"kind": "performance"},
        cache(2, "unified", 4 << 20, 4, 4) | {"kind": "efficiency"},
    ]
    said = drawn(report(cpu=cpu(sockets=1, cores=24, threads=32, kinds=kinds, caches=caches)))

    assert "8 performance cores · 16 threads" in said and "16 efficiency cores" in said
    assert "each core: L1d 48 KiB" in said and "each core: L1d 32 KiB" in said
    assert said.count("L2 2 MiB") == 8 and said.count("L2 4 MiB") == 4


def test_many_cores_share_squares_and_say_so() -> None:
    picture = pictures(rendered(report(cpu=cpu(cores=1024, threads=1024))))[0]

    assert len([*picture.iter("i")]) == 256
    assert "each square is 4 cores" in words(picture)


def test_cards_stand_at_their_node_with_their_bus() -> None:
    said = drawn(EIGHT_GPUS)

    assert sum(cell.startswith("◐ cuda") for cell in said) == 8
    assert said.count("PCIe 5 ×16") == 8
    assert "141 GiB · node 0" in said and "141 GiB · node 1" in said


def test_a_gpu_that_two_probes_see_is_drawn_once_as_far_as_the_better_got() -> None:
    seen = {"kind": "cuda", "index": 0, "presence": "usable", "pci_address": "0000:17:00.0"}
    one = report(
        cpu=cpu(cores=4, threads=4),
        cuda_driver={"presence": "usable", "devices": [seen]},
        nvidia={"presence": "loadable", "devices": [gpu(0, pci_address="0000:17:00.0")]},
        vulkan={"presence": "usable", "devices": [{"kind": "vulkan", "index": 0, "name": "same"}]},
    )
    said = drawn(one)

    assert [line for line in said if "cuda" in line] == ["✓ cuda 0 NVIDIA H200"]
    assert not [line for line in said if "vulkan" in line]


def test_a_link_between_two_cards_is_listed_with_its_kind() -> None:
    one = report(
        cpu=cpu(cores=4, threads=4),
        nvidia={
            "presence": "loadable",
            "facts": {"topology": [{"gpus": [0, 1], "nvlinks": 4}, {"gpus": [2, 9], "nvlinks": 4}]},
            "devices": [gpu(i) for i in range(3)],
        },
    )
    assert "4 NVLinks between 0 and 1" in drawn(one)


def test_a_switch_and_a_full_mesh_are_one_bar() -> None:
    switched = [gpu(i, facts={"nvlinks_lead_to_switch": True, "nvlinks_active": 18}) for i in range(4)]
    one = report(
        cpu=cpu(cores=4, threads=4),
        nvidia={"presence": "loadable", "facts": {"nvswitches": 4}, "devices": switched},
    )
    mesh = report(
        cpu=cpu(cores=4, threads=4),
        rocm={
            "presence": "usable",
            "facts": {
                "links": [{"from": a, "to": b, "kind": "xgmi"} for a in range(4) for b in range(a + 1, 4)]
            },
            "devices": [{"kind": "rocm", "index": i, "name": "MI300X"} for i in range(4)],
        },
    )

    assert "4 NVSwitches" in drawn(one)
    assert "xgmi between any two" in drawn(mesh)


def test_mig_instances_are_parts_of_their_card() -> None:
    parts = [
        {
            "kind": "mig",
            "index": i,
            "memory_bytes": 20 * GIB,
            "facts": {"parent": 0, "profile": f"{i + 1}g.20gb"},
        }
        for i in range(3)
    ]
    one = report(cpu=cpu(cores=4, threads=4), nvidia={"presence": "loadable", "devices": [gpu(0), *parts]})
    picture = pictures(rendered(one))[0]

    assert {"1g.20gb", "2g.20gb", "3g.20gb"} <= set(words(picture))
    assert [part.get("title") for part in picture.iter("span")][1:] == [
        f"MIG {i}g.20gb 20 GiB" for i in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    "facts",
    [
        {"threads": True, "cores": 4},
        {"threads": 8, "cores": 3, "sockets": -1, "numa_nodes": "x", "caches": [1, "y", {}]},
        {"threads": 8, "numa_nodes": [{"node": 0, "cpus": 3}, {"node": 1, "distances": ["x"]}]},
        {"cores": 4, "kinds": [{"name": 3, "threads": 1, "cores": 4}, None]},
        {"threads": 1 << 40, "cores": 1 << 40},
        {"threads": 8, "cores": 8, "sockets": 99, "numa_nodes": [{"node": 0}, {"node": 0}]},
        {"threads": 4, "caches": [{"level": 1, "type": 3, "size_bytes": 1, "instances": 1 << 50}]},
    ],
)
def test_senseless_facts_are_drawn_as_far_as_they_go(facts: dict[str, Any]) -> None:
    devices = [gpu(i, node=99, facts={"max_pcie_width": "x"}) for i in range(50)]
    topology = [{"gpus": [0, 0], "nvlinks": 1}, {"gpus": "x"}, {"gpus": [0, 1], "nvlinks": 1 << 40}]
    one = report(
        cpu=cpu(**facts),
        memory={"presence": "found", "facts": {"total_bytes": -5}},
        nvidia={"presence": "found", "devices": devices, "facts": {"topology": topology}},
    )

    for picture in pictures(rendered(one)):
        assert "and 18 more accelerators" in words(picture)
