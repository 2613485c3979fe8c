"""One survey for the workers of a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from mlbackends.audit.reports import report_of
from mlbackends.model.records import Presence, Report
from mlbackends.testing.machine import CURRENT, Machine, current

HOST = str(Path(__file__).resolve().parents[2] / "hosts" / "ivy-bridge-desktop.machine")


class Recorded(Machine):
    """A live machine that is a recorded one, and notes which probes it was asked for."""

    def __init__(self, folder: Path, depth: Presence = Presence.USABLE) -> None:
        super().__init__(depth=depth, share=str(folder))
        self.asked: list[tuple[str, ...]] = []

    def _survey(self, names: tuple[str, ...], depth: Presence) -> Report:
        self.asked.append(names)
        whole = report_of(HOST)
        return replace(whole, depth=depth, probes={name: whole.probes[name] for name in names})


def test_a_probe_is_asked_once_for_all(tmp_path: Path) -> None:
    workers = [Recorded(tmp_path) for _ in range(3)]
    first = workers[0].report(("cpu",))
    second = workers[1].report(("cpu", "mps"))
    third = workers[2].report(("mps",))

    assert [worker.asked for worker in workers] == [[("cpu",)], [("mps",)], []]
    assert second == third
    assert second.probes["cpu"] == first.probes["cpu"]


def test_what_was_asked_less_deeply_is_not_taken(tmp_path: Path) -> None:
    shallow, deep = Recorded(tmp_path, Presence.FOUND), Recorded(tmp_path)
    shallow.report(("cpu",))
    deep.report(("cpu",))

    assert deep.asked == [("cpu",)]


@pytest.mark.parametrize("left", [b"", b"{", b'{"schema": 1}', b"\xff"])
def test_a_file_that_was_cut_off_is_written_again(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "usable.json").write_bytes(left)
    first, second = Recorded(tmp_path), Recorded(tmp_path)

    assert "cpu" in first.report(("cpu",)).probes
    second.report(("cpu",))
    assert (first.asked, second.asked) == ([("cpu",)], [])


def test_the_first_to_ask_makes_the_folder(tmp_path: Path) -> None:
    share = tmp_path / "share"
    Machine(depth=Presence.FOUND, share=str(share)).report(("mps",))

    assert (share / "found.json").is_file()
    assert share.stat().st_mode & 0o077 == 0


def test_a_machine_whose_folder_cannot_be_made_asks_for_itself(tmp_path: Path) -> None:
    machine = Machine(depth=Presence.FOUND, share=str(tmp_path / "no" / "share"))

    assert machine.report(("mps",)) is machine.report(("mps",))
    assert set(machine.report(("mtia",)).probes) == {"mps", "mtia"}


def test_a_saved_report_that_lacks_a_probe_says_so(tmp_path: Path) -> None:
    import msgspec

    from mlbackends.base.errors import BadInput

    file = tmp_path / "part.json"
    file.write_bytes(msgspec.json.encode(Recorded(tmp_path)._survey(("cpu",), Presence.USABLE)))

    with pytest.raises(BadInput, match="has no report of cudnn"):
        Machine(str(file)).report(("cpu", "cudnn"))


def test_the_run_that_ends_gives_the_machine_back() -> None:
    before, machine = current(), Machine(HOST)
    CURRENT.append(machine)
    inside = current()
    CURRENT.remove(machine)

    assert inside is machine
    assert current() is before
