"""What names the machine or its user is gone, what was equal stays equal, and the rest is untouched."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.reasons import Reason
from mlbackends.host.redaction import Names, redacted
from mlbackends.model.records import SCHEMA, Device, Library, Presence, ProbeReport, Report

NAMES = Names(node="node-17", user="grace", home="/home/grace/")


def report(**probes: ProbeReport) -> Report:
    return Report(SCHEMA, "backends 0", Presence.FOUND, "/", "", 0.0, False, probes)


def hidden(probe: ProbeReport, name: str = "nvidia") -> ProbeReport:
    return redacted(report(**{name: probe}), NAMES).probes[name]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/home/grace/env/lib/libcudnn.so.9", "~/env/lib/libcudnn.so.9"),
        ("/home/graceful/lib.so", "/home/USER/lib.so"),
        ("/scratch/grace/lib.so", "/scratch/USER/lib.so"),
        ("http://grace:secret@proxy:80/", "http://redacted@proxy:80/"),
        ("aa:bb:cc:dd:ee:ff", "redacted-1"),
        ("aa-bb-cc-dd-ee-ff", "redacted-1"),
        ("00:11:aa:bb:cc:dd:ee:ff", "redacted-1"),
        ("/docker/" + "4b" * 32 + "/x", "/docker/redacted-1/x"),
        ("/ecs/" + "4b" * 16, "/ecs/redacted-1"),
        ("pod5a1e3f2c_0b4d_4c8e_9f00_112233445566.slice", "podredacted-1.slice"),
        ("4b" * 20, "4b" * 20),
        ("/nfs/home/bob/x", "/nfs/home/USER/x"),
        ("/mnt/c/Users/Bob/x", "/mnt/c/Users/USER/x"),
        ("C:\\Users\\Bob\\x", "C:\\Users\\USER\\x"),
        ("C:/Users/Bob Doe/x y, C:/Users/z", "C:/Users/USER/x y, C:/Users/USER"),
        ("c:\\users\\BOBDOE~1\\x", "c:\\users\\USER\\x"),
        ("\\\\?\\C:\\Users\\Bob Doe\\x", "\\\\?\\C:\\Users\\USER\\x"),
        ("D:\\work\\grace\\x.dll", "D:\\work\\USER\\x.dll"),
        ("C:\\Users\\Public\\x, C:/Users/Default/y", "C:\\Users\\Public\\x, C:/Users/Default/y"),
        ("of S-1-5-21-3623811015-3361044348-30300820-1013", "of redacted-1"),
        (
            f"C:/x/libscipy_openblas64_-{'3a' * 16}.dll",
            f"C:/x/libscipy_openblas64_-{'3a' * 16}.dll",
        ),
        ("node-17: no, node-178", "HOST: no, node-178"),
        ("/opt/envs/grace-torch/lib/x.so", "/opt/envs/USER-torch/lib/x.so"),
        ("/opt/py3_grace.old/x.so", "/opt/py3_USER.old/x.so"),
        ("/user.slice/user-grace.slice/x", "/user.slice/user-USER.slice/x"),
        ("/sys/fs/cgroup/user-grace.slice/x", "/sys/fs/cgroup/user-USER.slice/x"),
        ("/data/run-node-17.log", "/data/run-HOST.log"),
        ("/opt/libgrace-1/graceful-x", "/opt/libgrace-1/graceful-x"),
        ("/usr/lib/x-grace-1.so", "/usr/lib/x-grace-1.so"),
        ("0000:10:00.0", "0000:10:00.0"),
        ("see tcp://203.0.113.77:80, 10.2.0.1", "see tcp://redacted-1:80, 10.2.0.1"),
        ("tcp://127.0.0.1:80 tcp://0.0.0.0", "tcp://127.0.0.1:80 tcp://0.0.0.0"),
        ("12.9.4.2", "12.9.4.2"),
    ],
)
def test_texts_lose_names_and_keep_the_rest(before: str, after: str) -> None:
    probe = ProbeReport(Presence.FOUND, libraries=(Library("x", before),))

    assert hidden(probe).libraries[0].path == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/root/env/lib/x.so", "~/env/lib/x.so"),
        ("PATH=/root/bin:/root", "PATH=~/bin:~"),
        ("/opt/rh/gcc-toolset-13/root/usr/bin/c++", "/opt/rh/gcc-toolset-13/root/usr/bin/c++"),
    ],
)
def test_the_home_of_root_is_no_part_of_another_path(before: str, after: str) -> None:
    probe = ProbeReport(Presence.FOUND, libraries=(Library("x", before),))
    shown = redacted(report(nvidia=probe), Names(user="root", home="/root")).probes["nvidia"]

    assert shown.libraries[0].path == after


def test_a_short_user_name_is_replaced_where_it_is_a_part_of_a_path() -> None:
    probe = ProbeReport(Presence.FOUND, libraries=(Library("bo", "/data/bo/lib:/data/bob:/sys/bo"),))
    told = redacted(report(nvidia=probe), Names(user="bo")).probes["nvidia"].libraries[0]
    assert told.path == "/data/USER/lib:/data/bob:/sys/bo"
    assert told.name == "bo"


@pytest.mark.parametrize("name", ["torch", "mkl", "gnu", "so"])
def test_a_name_that_is_a_word_is_replaced_nowhere_else(name: str) -> None:
    path = f"/opt/x86_64-{name}/lib{name}.{name}"
    probe = ProbeReport(Presence.FOUND, libraries=(Library("x", path),))
    told = redacted(report(nvidia=probe), Names(node=name, user=name)).probes["nvidia"]
    assert told.libraries[0].path == path


@pytest.mark.parametrize(
    ("variable", "before", "after"),
    [
        ("INIT_METHOD", "tcp://203.0.113.77:29500", "tcp://redacted-1:29500"),
        ("MASTER_ADDR", "gw7.corp", "redacted-1"),
        ("NCCL_COMM_ID", "[fe80::1234]:4242", "[redacted-1]:4242"),
        ("PIP_INDEX_URL", "https://pypi.corp/x", "https://redacted-1/x"),
        ("PIP_INDEX_URL", "https://pypi.org/x", "https://pypi.org/x"),
        ("MASTER_ADDR", "127.0.0.1", "127.0.0.1"),
        ("CUDNN_VERSION", "9.1.0.70", "9.1.0.70"),
    ],
)
def test_addresses_in_variables_are_hidden_as_in_a_recorded_machine(
    variable: str, before: str, after: str
) -> None:
    probe = ProbeReport(
        Presence.FOUND,
        facts={"variables": {variable: before}},
        warnings=(Reason("conflict", f"{variable} is {before}, and cannot be"),),
    )

    cleaned = hidden(probe, "environment")
    assert cleaned.facts == {"variables": {variable: after}}
    assert cleaned.warnings[0].message == f"{variable} is {after}, and cannot be"


def test_a_server_that_is_called_by_a_word_is_hidden_in_its_variable_alone() -> None:
    warning = Reason("conflict", "the master of the worker is not there")
    facts: dict[str, Any] = {"variables": {"MASTER_ADDR": "master", "PEER_HOSTS": "gw7"}}

    cleaned = hidden(ProbeReport(Presence.FOUND, facts=facts, warnings=(warning,)), "environment")
    assert cleaned.facts["variables"] == {"MASTER_ADDR": "redacted-1", "PEER_HOSTS": "redacted-2"}
    assert cleaned.warnings == (warning,)


def test_the_server_of_a_package_is_hidden_and_a_version_stays() -> None:
    facts: dict[str, Any] = {"wheels": [{"url": "https://pypi.corp/x-10.2.0.1.whl", "version": "10.2.0.1"}]}

    assert hidden(ProbeReport(Presence.FOUND, facts=facts), "packages").facts == {
        "wheels": [{"url": "https://redacted-1/x-10.2.0.1.whl", "version": "10.2.0.1"}]
    }


def test_reasons_and_hints_are_cleaned_too() -> None:
    reason = Reason("dlopen-failed", "/home/grace/x.so: no", "look into /home/grace")

    cleaned = hidden(ProbeReport(Presence.FOUND, reasons=(reason,))).reasons[0]
    assert (cleaned.message, cleaned.hint) == ("~/x.so: no", "look into ~")


def test_equal_identities_stay_equal_and_different_ones_different() -> None:
    uuid = "GPU-11111111-2222-3333-4444-555555555555"
    devices = (Device("cuda", 0, uuid=uuid, serial="1"), Device("cuda", 1, uuid=uuid, serial="2"))

    first, second = hidden(ProbeReport(Presence.FOUND, devices=devices)).devices
    assert first.uuid == second.uuid
    assert first.serial != second.serial
    assert uuid[4:] not in str(first)


def test_a_uuid_inside_a_variable_is_hidden() -> None:
    value = "MIG-11111111-2222-3333-4444-555555555555"

    facts = hidden(ProbeReport(Presence.FOUND, facts={"variables": {"CUDA_VISIBLE_DEVICES": value}})).facts
    assert facts["variables"] == {"CUDA_VISIBLE_DEVICES": "MIG-redacted-1"}


@given(st.recursive(st.text() | st.integers(-9, 9) | st.booleans(), st.lists, max_leaves=9))
def test_a_redacted_report_is_still_a_report(value: object) -> None:
    before = report(cpu=ProbeReport(Presence.FOUND, facts={"features": value}))  # type: ignore[dict-item]

    after = redacted(before, NAMES)
    assert after.redacted
    assert msgspec.json.decode(msgspec.json.encode(after), type=Report) == after
    again = redacted(after, NAMES)
    assert again == after


def test_a_probe_that_is_not_here_is_hidden_by_names_and_patterns_and_says_so() -> None:
    """A report of a machine with another package's probe, read where that is not installed."""
    probe = ProbeReport(
        Presence.FOUND,
        facts={
            "host_name": "node-17",
            "Serial": 5171,
            "numa_node": 1,
            "links": [{"mac_address": "?", "speed": 100, "at": "/home/grace/x"}],
        },
        libraries=(Library("fast", "/opt/fast.so", found_by="path", facts={"user": "ada"}),),
        devices=(Device("npu", 0, volatile={"owner": "ada", "clock": 1}),),
    )

    found = hidden(probe, "frobnicator")

    assert found.facts == {
        "host_name": "redacted-1",
        "Serial": "redacted-2",
        "numa_node": 1,
        "links": [{"mac_address": "redacted-3", "speed": 100, "at": "~/x"}],
    }
    assert found.libraries[0].facts == {"user": "redacted-4"}
    assert found.devices[0].volatile == {"owner": "redacted-4", "clock": 1}
    (warning,) = found.warnings
    assert warning.code == "unknown-probe"
    assert "the probe frobnicator is not installed" in warning.message


def test_a_windows_is_known_by_its_short_name_in_capitals_too() -> None:
    names = Names(node="workstation-graces", user="Grace Hopper", home="C:/Users/Grace Hopper")
    library = Library("x", "C:/Users/Grace Hopper/on WORKSTATION-GRA/x.dll")
    found = redacted(report(nvidia=ProbeReport(Presence.FOUND, libraries=(library,))), names)

    assert found.probes["nvidia"].libraries[0].path == "~/on HOST/x.dll"
