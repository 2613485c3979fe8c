"""The memory probe on recorded machines."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec

from mlbackends.host.declared import facts_of
from mlbackends.model.records import Presence
from mlbackends_probes import memory

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Machine

    from mlbackends.host.host import Host
    from mlbackends.model.records import Finding

MM = "sys/kernel/mm"
MEMINFO = """\
MemTotal:       527994244 kB
MemFree:        402311116 kB
MemAvailable:   498112044 kB
SwapTotal:       8388604 kB
SwapFree:        8000000 kB
HardwareCorrupted:     0 kB
HugePages_Total:    1024
HugePages_Free:     1000
Hugepagesize:       2048 kB
"""


def look(host: Host) -> Finding:
    finding = memory.find(host)
    assert finding.presence is Presence.FOUND
    declared = {name: fact.kind for name, fact in facts_of("memory").items()}
    for name, value in finding.facts.items():
        assert name in declared, name
        msgspec.convert(value, declared[name], strict=True)
    msgspec.json.encode(finding)
    return finding


def test_sizes_that_cannot_be_zero_are_left_out_then(machine: Machine) -> None:
    text = "MemTotal: 0 kB\nSwapTotal: 0 kB\nHugepagesize: 0 kB\n"
    assert look(machine({"proc/meminfo": text})).facts == {"swap_total_bytes": 0}


def test_pools_of_huge_pages_come_smallest_first(machine: Machine) -> None:
    small, large = f"{MM}/hugepages/hugepages-2048kB", f"{MM}/hugepages/hugepages-1048576kB"
    files: dict[str, str | bytes] = {
        f"{small}/nr_hugepages": "1024\n",
        f"{small}/nr_overcommit_hugepages": "0\n",
        f"{small}/free_hugepages": "1000\n",
        f"{small}/resv_hugepages": "8\n",
        f"{small}/surplus_hugepages": "0\n",
        f"{large}/nr_hugepages": "2\n",
        f"{MM}/hugepages/garbage/nr_hugepages": "7\n",
    }
    facts = look(machine(files)).facts
    assert facts["huge_pages"] == [
        {"page_bytes": 2 << 20, "count": 1024, "overcommit": 0},
        {"page_bytes": 1 << 30, "count": 2},
    ]
    assert facts["huge_pages_in_use"] == [
        {"page_bytes": 2 << 20, "free": 1000, "reserved": 8, "surplus": 0},
        {"page_bytes": 1 << 30},
    ]


def test_settings_are_words_and_switches(machine: Machine) -> None:
    files: dict[str, str | bytes] = {
        f"{MM}/transparent_hugepage/enabled": "always [madvise] never\n",
        f"{MM}/transparent_hugepage/defrag": "always defer [defer+madvise] madvise never\n",
        f"{MM}/transparent_hugepage/shmem_enabled": "always within_size advise [never] deny\n",
        f"{MM}/transparent_hugepage/hpage_pmd_size": "2097152\n",
        f"{MM}/ksm/run": "1\n",
        "proc/sys/vm/overcommit_memory": "2\n",
        "proc/sys/vm/overcommit_ratio": "95\n",
        "proc/sys/vm/swappiness": "10\n",
        "proc/sys/vm/max_map_count": "65530\n",
        "proc/sys/kernel/numa_balancing": "1\n",
        "sys/module/zswap/parameters/enabled": "Y\n",
        "sys/module/zswap/parameters/compressor": "zstd\n",
    }
    assert look(machine(files)).facts == {
        "transparent_huge_pages": "madvise",
        "transparent_huge_pages_defrag": "defer+madvise",
        "transparent_huge_pages_shared": "never",
        "transparent_huge_page_bytes": 2 << 20,
        "kernel_samepage_merging": True,
        "overcommit": "never",
        "overcommit_ratio": 95,
        "swappiness": 10,
        "max_map_count": 65530,
        "numa_balancing": True,
        "zswap": True,
        "zswap_compressor": "zstd",
    }


def test_each_swap_area_has_its_kind(machine: Machine) -> None:
    text = (
        "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
        "/dev/zram0                              partition\t8388604\t\t0\t\t100\n"
        "/swap\\040file                           file\t\t2097148\t\t12\t\t-2\n"
        "garbage\n"
    )
    assert look(machine({"proc/swaps": text})).facts["swaps"] == [
        {"path": "/dev/zram0", "kind": "zram", "size_bytes": 8388604 << 10, "priority": 100},
        {"path": "/swap\\040file", "kind": "file", "size_bytes": 2097148 << 10, "priority": -2},
    ]


LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max locked memory         {soft:<20} {soft:<20} bytes
"""


def test_a_small_limit_on_locked_memory_is_a_warning_only_with_rdma(machine: Machine, tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"proc/self/limits": LIMITS.format(soft="8388608")}
    (tmp_path / "without").mkdir()
    without = look(machine(files))
    assert without.facts["locked_memory_limit_bytes"] == 8 << 20
    assert without.facts["locked_memory_unlimited"] is False
    assert without.warnings == ()
    (tmp_path / "with").mkdir()
    rdma: dict[str, str | bytes] = files | {"sys/class/infiniband/mlx5_0/node_type": "1: CA\n"}
    warnings = look(machine(rdma)).warnings
    assert [warning.code for warning in warnings] == ["limit-below-hardware"]
    assert "mlx5_0" in warnings[0].message


def test_no_limit_on_locked_memory_has_no_number(machine: Machine) -> None:
    files: dict[str, str | bytes] = {"proc/self/limits": LIMITS.format(soft="unlimited")}
    assert look(machine(files)).facts == {"locked_memory_unlimited": True}


def test_faulty_memory_is_a_warning(machine: Machine) -> None:
    text = MEMINFO.replace("HardwareCorrupted:     0 kB", "HardwareCorrupted:    64 kB")
    warnings = look(machine({"proc/meminfo": text})).warnings
    assert [warning.code for warning in warnings] == ["degraded"]


def test_the_page_size_is_the_recorded_machines(machine: Machine) -> None:
    vector = b"".join(struct.pack("<QQ", *entry) for entry in ((6, 65536), (0, 0)))
    assert look(machine({"proc/self/auxv": vector})).facts == {"page_bytes": 65536}
