from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.base.errors import BadInput
from mlbackends.host.device_nodes import accel_nodes, all_denied, denied, device_nodes, render_node
from mlbackends.host.host import Host

if TYPE_CHECKING:
    from pathlib import Path


class Refused(Host):
    """A live machine in a folder, whose user may open nothing."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.is_live = True

    def real(self, path: str) -> str:
        return self.root + path

    def can_open(self, path: str) -> bool:
        return False

    def system(self, name: str) -> object:
        return [1000] if name == "group_ids" else None


def test_a_refused_node_names_the_group_that_may(tmp_path: Path) -> None:
    node = tmp_path / "dev" / "kfd"
    node.parent.mkdir()
    node.touch()
    node.chmod(0o660)
    group = node.stat().st_gid
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "group").write_text(f"video:x:44444:\nrender:x:{group}:alice\n")

    reason = denied(Refused(tmp_path), "/dev/kfd")

    assert reason is not None
    assert reason.code == "permission-denied"
    assert "group render" in reason.message
    assert "usermod -aG render" in reason.hint


def test_a_node_that_no_group_may_open_names_none(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    node = tmp_path / "kfd"
    node.touch()
    node.chmod(0o600)

    reason = denied(Refused(tmp_path), "/kfd")

    assert reason is not None
    assert "group" not in reason.message


def test_a_node_that_is_not_there_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    assert denied(Refused(tmp_path), "/dev/kfd") is None


def test_a_recorded_machine_refuses_only_the_nodes_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("kfd", "accel0"):
        (tmp_path / "dev" / name).touch()
    told = '{"system": {"denied_nodes": ["/dev/kfd", "/dev/none"]}}'
    (tmp_path / "host.json").write_text(told)
    host = Host(str(tmp_path))

    reason = denied(host, "/dev/kfd")

    assert reason is not None
    assert reason.message == "this user has no read and write access to /dev/kfd"
    assert denied(host, "/dev/accel0") is None
    assert denied(host, "/dev/none") is None


@pytest.mark.parametrize("system", ["{}", '{"denied_nodes": null}', '{"denied_nodes": []}'])
def test_a_recording_that_does_not_tell_refuses_nothing(tmp_path: Path, system: str) -> None:
    (tmp_path / "kfd").touch()
    (tmp_path / "host.json").write_text(f'{{"system": {system}}}')

    assert denied(Host(str(tmp_path)), "/kfd") is None


@pytest.mark.parametrize("garbage", ["3", '"/kfd"', '{"/kfd": 1}', '["/kfd", 3]'])
def test_a_recording_that_names_its_nodes_otherwise_is_refused(tmp_path: Path, garbage: str) -> None:
    (tmp_path / "host.json").write_text(f'{{"system": {{"denied_nodes": {garbage}}}}}')

    with pytest.raises(BadInput, match="denied_nodes"):
        Host(str(tmp_path))


def test_nodes_are_refused_where_not_one_of_them_opens(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    for name in ("one", "two"):
        (tmp_path / name).touch()
    refusing = Refused(tmp_path)

    assert all_denied(refusing, ["/one", "/two"]) == (denied(refusing, "/one"),)
    assert all_denied(refusing, ["/one", "/none"]) == ()
    assert all_denied(refusing, []) == ()


def test_the_render_node_of_a_device(tmp_path: Path) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:03:00.0/drm"
    for name in ("card1", "renderD129"):
        (folder / name).mkdir(parents=True)

    assert render_node(Host(str(tmp_path)), "0000:03:00.0") == "/dev/dri/renderD129"
    assert render_node(Host(str(tmp_path)), "0000:04:00.0") == ""


def test_accelerators_by_the_address_of_their_device(tmp_path: Path) -> None:
    folder = tmp_path / "sys/class/accel/accel0"
    folder.mkdir(parents=True)
    (folder / "device").symlink_to("../../../0000:00:0B.0")

    assert accel_nodes(Host(str(tmp_path))) == {"accel0": "0000:00:0b.0"}


def test_device_nodes_match_by_their_whole_name(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("davinci0", "davinci_manager", "davinci12"):
        (tmp_path / "dev" / name).touch()

    found = device_nodes(Host(str(tmp_path)), "davinci")
    assert found == ["/dev/davinci0", "/dev/davinci12"]
