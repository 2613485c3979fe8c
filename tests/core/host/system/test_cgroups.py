"""Control groups of composed machines: where the groups are, and the limits on the way up."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import pytest

from mlbackends.host.system import cgroups
from mlbackends.host.system.cgroups import Limit
from mlbackends.host.system.kernel import Mount, mounts

if TYPE_CHECKING:
    from tests.conftest import Machine

GIB = 1 << 30
NO_LIMIT = str((1 << 63) - 4096)
V2_MOUNT = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"


def v1_mount(controllers: str, root: str = "/") -> str:
    return f"33 31 0:30 {root} /sys/fs/cgroup/{controllers} rw - cgroup cgroup rw,{controllers}"


def test_a_v1_path_that_the_mount_does_not_show_falls_back_to_what_it_shows(
    machine: Machine,
) -> None:
    # Docker with a private mount whose root is not the path that the kernel gives the process.
    host = machine(
        {
            "proc/self/cgroup": "4:memory:/docker/0123abcd\n",
            "proc/self/mountinfo": v1_mount("memory", "/system.slice/other"),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{2 * GIB}\n",
        }
    )
    limit = cgroups.limit(host, "memory_limit_bytes")
    assert limit is not None and (limit.value, limit.folder) == (2 * GIB, "/sys/fs/cgroup/memory")


def test_a_hidden_ancestor_of_v1_still_counts_through_the_hierarchical_limit(
    machine: Machine,
) -> None:
    host = machine(
        {
            "proc/self/cgroup": "4:memory:/kubepods/pod1/c1\n",
            "proc/self/mountinfo": v1_mount("memory", "/kubepods/pod1/c1"),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": NO_LIMIT,
            "sys/fs/cgroup/memory/memory.stat": f"cache 1\nhierarchical_memory_limit {3 * GIB}\n",
        }
    )
    limit = cgroups.limit(host, "memory_limit_bytes")
    assert limit == Limit(3 * GIB, "/sys/fs/cgroup/memory", "memory.stat")


def test_an_ancestor_that_is_tighter_than_the_leaf_sets_the_limits_of_v2(machine: Machine) -> None:
    top = "sys/fs/cgroup/a.slice"
    host = machine(
        {
            "proc/self/cgroup": "0::/a.slice/b.scope/leaf\n",
            "proc/self/mountinfo": V2_MOUNT,
            "sys/fs/cgroup/cgroup.controllers": "cpuset cpu memory pids",
            f"{top}/cpu.max": "200000 100000\n",
            f"{top}/memory.max": f"{8 * GIB}\n",
            f"{top}/pids.max": "max\n",
            f"{top}/cpuset.cpus.effective": "0-7\n",
            f"{top}/b.scope/cpu.max": "max 100000\n",
            f"{top}/b.scope/memory.max": "max\n",
            f"{top}/b.scope/memory.high": f"{6 * GIB}\n",
            f"{top}/b.scope/cpuset.cpus.effective": "0-3\n",
            f"{top}/b.scope/pids.max": "512\n",
            f"{top}/b.scope/leaf/cpu.max": "800000 100000\n",
            f"{top}/b.scope/leaf/memory.max": f"{16 * GIB}\n",
            f"{top}/b.scope/leaf/memory.swap.max": "0\n",
            f"{top}/b.scope/leaf/memory.current": "123456\n",
            f"{top}/b.scope/leaf/cpu.weight": "50\n",
        }
    )
    assert cgroups.version(host) == "v2"
    assert cgroups.cpu_quota(host) == Limit(2.0, f"/{top}", "cpu.max")
    assert cgroups.limit(host, "memory_limit_bytes") == Limit(8 * GIB, f"/{top}", "memory.max")
    assert cgroups.limit(host, "memory_high_bytes") == Limit(6 * GIB, f"/{top}/b.scope", "memory.high")
    assert cgroups.limit(host, "swap_limit_bytes") == Limit(0, f"/{top}/b.scope/leaf", "memory.swap.max")
    assert cgroups.limit(host, "process_limit") == Limit(512, f"/{top}/b.scope", "pids.max")
    assert cgroups.allowed_cpus(host) == (0, 1, 2, 3)
    assert cgroups.memory_usage(host) == 123456
    assert cgroups.cpu_weight(host) == ("weight", 50)


def test_a_process_outside_of_our_namespace_is_not_given_our_limits(machine: Machine) -> None:
    host = machine(
        {
            "proc/self/cgroup": "0::/../elsewhere\n",
            "proc/self/mountinfo": V2_MOUNT,
            "sys/fs/cgroup/cpu.max": "50000 100000\n",
        }
    )
    assert cgroups.cpu_quota(host) is None
    assert cgroups.groups(host) == ()


def test_a_mount_above_the_namespace_shows_a_group_beside_ours(machine: Machine) -> None:
    host = machine(
        {
            "proc/self/cgroup": "0::/../elsewhere\n",
            "proc/self/mountinfo": V2_MOUNT.replace(" / ", " /.. ", 1),
            "sys/fs/cgroup/elsewhere/cpu.max": "300000 100000\n",
        }
    )
    assert cgroups.cpu_quota(host) == Limit(3.0, "/sys/fs/cgroup/elsewhere", "cpu.max")


def test_a_hybrid_machine_has_its_controllers_in_v1_and_an_empty_v2(machine: Machine) -> None:
    host = machine(
        {
            "proc/self/cgroup": "4:memory:/job\n1:cpu:/job\n0::/\n",
            "proc/self/mountinfo": "\n".join(
                [
                    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755",
                    v1_mount("cpu"),
                    v1_mount("memory"),
                    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
                ]
            ),
            "sys/fs/cgroup/cpu/job/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/job/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu/job/cpu.shares": "2048\n",
            "sys/fs/cgroup/memory/job/memory.limit_in_bytes": NO_LIMIT,
            "sys/fs/cgroup/unified/cgroup.controllers": "",
            "sys/fs/cgroup/unified/cpu.stat": "usage_usec 5\n",
        }
    )
    assert cgroups.version(host) == "hybrid"
    assert cgroups.cpu_quota(host) == Limit(inf)
    assert cgroups.limit(host, "memory_limit_bytes") == Limit(inf)
    assert cgroups.cpu_weight(host) == ("shares", 2048)
    assert cgroups.limit(host, "process_limit") is None


def test_a_named_v1_hierarchy_beside_v2_does_not_make_it_hybrid(machine: Machine) -> None:
    host = machine(
        {
            "proc/self/cgroup": "1:name=systemd:/\n0::/\n",
            "proc/self/mountinfo": f"{v1_mount('name=systemd')}\n{V2_MOUNT}",
            "sys/fs/cgroup/cpu.max": "max 100000\n",
        }
    )
    assert cgroups.version(host) == "v2"


def test_a_machine_recorded_without_its_mounts_is_read_at_the_customary_places(
    machine: Machine,
) -> None:
    folder = "sys/fs/cgroup/cpu,cpuacct/box"
    files = {"proc/self/cgroup": "2:cpu,cpuacct:/box\n", f"{folder}/cpu.cfs_quota_us": "400000\n"}
    host = machine(files | {f"{folder}/cpu.cfs_period_us": "100000\n"})

    assert cgroups.version(host) == "v1"
    assert cgroups.cpu_quota(host) == Limit(4.0, f"/{folder}", "cpu.cfs_quota_us")


def test_ancestors_of_v1_without_use_hierarchy_do_not_bind(machine: Machine) -> None:
    host = machine(
        {
            "proc/self/cgroup": "4:memory:/outer/inner\n",
            "proc/self/mountinfo": v1_mount("memory"),
            "sys/fs/cgroup/memory/outer/memory.limit_in_bytes": f"{GIB}\n",
            "sys/fs/cgroup/memory/outer/memory.use_hierarchy": "0\n",
            "sys/fs/cgroup/memory/outer/inner/memory.limit_in_bytes": f"{5 * GIB}\n",
        }
    )
    limit = cgroups.limit(host, "memory_limit_bytes")
    assert limit is not None and limit.value == 5 * GIB


@pytest.mark.parametrize("largest", [(1 << 63) - 4096, (1 << 63) - 65536, (1 << 63) - 1, (1 << 64) - 1])
def test_the_largest_number_of_pages_is_no_limit(machine: Machine, largest: int) -> None:
    host = machine(
        {
            "proc/self/cgroup": "4:memory:/\n",
            "proc/self/mountinfo": v1_mount("memory"),
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{largest}\n",
        }
    )
    assert cgroups.limit(host, "memory_limit_bytes") == Limit(inf)


@pytest.mark.parametrize(
    ("stat", "expected"),
    [
        ("nr_periods 200\nnr_throttled 50\nthrottled_usec 1500000\n", (200, 50, 1.5)),
        ("nr_periods 200\nnr_throttled 50\nthrottled_time 2500000000\n", (200, 50, 2.5)),
        ("usage_usec 7\n", None),
        ("nr_periods 1\nnr_throttled 50\n", None),
        ("nr_periods x\nnr_throttled\n", None),
    ],
)
def test_throttling_is_told_in_seconds_or_not_at_all(
    machine: Machine, stat: str, expected: tuple[int, int, float] | None
) -> None:
    host = machine(
        {
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": V2_MOUNT,
            "sys/fs/cgroup/cpu.stat": stat,
        }
    )
    assert cgroups.throttling(host) == expected


GARBAGE = ["", "\0\udcff", "9" * 5000, "-7", "0", "1e9", "max max max", "0/0", "\n\n", "1 2 3"]


@pytest.mark.parametrize("text", GARBAGE, ids=lambda text: repr(text[:12]))
def test_garbage_in_every_file_tells_nothing(machine: Machine, text: str) -> None:
    names = ["cpu.max", "memory.max", "memory.high", "memory.current", "pids.max", "cpu.stat"]
    names += ["cpuset.cpus.effective", "cpuset.mems.effective", "cpu.weight", "memory.stat"]
    host = machine(
        {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2_MOUNT}
        | {f"sys/fs/cgroup/{name}": text for name in names}
    )
    assert cgroups.cpu_quota(host) is None
    assert cgroups.limit(host, "memory_limit_bytes") is None
    assert cgroups.limit(host, "process_limit") is None
    assert cgroups.throttling(host) is None
    assert all(cpu < 65536 for cpu in cgroups.allowed_cpus(host))


def test_a_mount_point_with_a_space_in_it_is_read(machine: Machine) -> None:
    line = r"36 35 98:0 /root\040x /mnt/a\040b rw master:1 shared:2 - ext4 /dev/root rw,errors=x"
    host = machine({"proc/self/mountinfo": f"garbage\n{line}\n1 2 3 - x\n"})
    mount = Mount("/root x", "/mnt/a b", "ext4", ("rw", "errors=x"), ("rw",))
    assert mounts(host) == (mount,)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("cgroup", "rw,cpuset,noprefix,release_agent=/sbin/agent"), ("cpuset", "rw")],
)
def test_a_cpuset_mounted_without_prefix_is_read(machine: Machine, kind: str, options: str) -> None:
    """As on Android, and on kernels from before control groups."""
    files = {
        "proc/self/cpuset": "/foreground",
        "proc/mounts": f"rootfs / rootfs rw 0 0\nnone /dev/cpuset {kind} {options} 0 0\n",
        "dev/cpuset/cpus": "0-7",
        "dev/cpuset/mems": "0",
        "dev/cpuset/foreground/cpus": "0-3,6",
        "dev/cpuset/foreground/mems": "0",
    }
    host = machine(files)
    assert cgroups.allowed_cpus(host) == (0, 1, 2, 3, 6)
    assert cgroups.allowed_memory_nodes(host) == (0,)
