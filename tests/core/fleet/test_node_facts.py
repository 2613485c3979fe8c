"""A thousand equal nodes have equal facts of network, mounts, clock and Slurm; what differs is found."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import msgspec

from mlbackends.audit.compare import compare
from mlbackends.fleet.collection import Collection
from mlbackends.fleet.groups import fleet_of
from mlbackends.model.fleet import Envelope
from mlbackends.model.records import Presence
from mlbackends.survey import survey

if TYPE_CHECKING:
    from tests.conftest import Machine

    from mlbackends.model.records import Report

PROBES = ["clock", "cpu", "host", "mounts", "network", "nvidia", "slurm"]
NET, RDMA = "sys/class/net", "sys/class/infiniband"


def node(machine: Machine, number: int, **changed: str) -> Report:
    """Return what is found on a node, with what differs between two equal nodes and two moments."""
    chance = random.Random(number)
    files: dict[str, str | bytes] = {
        "proc/cpuinfo": "model name : Xeon\n",
        "proc/sys/kernel/random/boot_id": f"{number:08d}-0000-4000-8000-000000000000\n",
        "proc/modules": "nvidia 1 0 - Live 0x0 (POE)\nmlx5_core 1 0 - Live 0x0\n"
        + ("nvidia_uvm 1 0 - Live 0x0 (POE)\n" if number % 2 else ""),
        "sys/module/mlx5_core/srcversion": "A1B2\n",
        "sys/class/dmi/id/bios_version": "2.1\n",
        f"{NET}/eth0/device/vendor": "0x15b3\n",
        f"{NET}/eth0/address": f"02:00:00:00:00:{number:02x}\n",
        f"{NET}/eth0/operstate": "up\n",
        f"{NET}/eth0/speed": "100000\n",
        f"{NET}/eth0/statistics/rx_errors": f"{chance.randrange(3)}\n",
        f"{RDMA}/mlx5_0/ports/1/state": "4: ACTIVE\n",
        f"{RDMA}/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        f"{RDMA}/mlx5_0/ports/1/counters/symbol_error": f"{chance.randrange(9)}\n",
        f"{RDMA}/mlx5_0/node_guid": f"{number:016x}\n",
        "sys/fs/cgroup/system.slice/chronyd.service/cgroup.procs": "1\n",
        "proc/self/mountinfo": (
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
            f"30 22 0:40 / /data rw - nfs4 s{number % 7}:/data rw,hard,vers=4.2,addr=10.0.0.{number % 7}\n"
            "31 22 0:41 / /home rw - autofs auto.home rw\n"
            f"32 31 0:42 / /home/user{number} rw - nfs4 filer:/home/user{number} rw,hard\n"
        ),
        "etc/slurm/slurm.conf": "NodeName=n[0-999] CPUs=64 Gres=gpu:8\n",
        **changed,
    }
    clock = {"is_synchronised": True, "maximum_error_seconds": chance.random() / 10}
    host = machine(files, uname={"nodename": f"n{number}"}, system={"clock": clock})
    return survey(PROBES, host, Presence.FOUND)


def test_equal_nodes_have_no_finding_and_a_node_that_differs_is_named(machine: Machine) -> None:
    reports = [node(machine, number) for number in range(20)]
    assert compare(reports[0], reports[1]).changes == ()
    nodes: dict[str, Any] = {f"n{number}": reports[number % 20] for number in range(1000)}
    assert not fleet_of(collected(nodes)).drifts

    port, mountinfo = f"{RDMA}/mlx5_0/ports/1", "30 1 0:40 / /data rw - nfs4 filer:/data rw,soft,vers=4.2\n"
    nodes |= {
        "n7": node(machine, 7, **{f"{port}/rate": "200 Gb/sec (2X NDR)\n"}),
        "n70": node(machine, 70, **{"proc/self/mountinfo": mountinfo}),
        "n700": node(machine, 700, **{"sys/class/dmi/id/bios_version": "2.0\n"}),
    }
    fleet = fleet_of(collected(nodes))
    deviations = [deviation for kind in fleet.kinds for deviation in kind.deviations]
    assert {found.nodes: found.differences[0].name.split(".")[0] for found in deviations} == {
        ("n7",): "network",
        ("n70",): "mounts",
        ("n700",): "host",
    }


def collected(nodes: dict[str, Report]) -> Collection:
    collection = Collection()
    for name, report in nodes.items():
        collection.add(Envelope(node=name, report=msgspec.Raw(msgspec.json.encode(report))))
    return collection
