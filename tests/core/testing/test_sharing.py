"""One survey for the workers of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlbackends.audit.reports import report_of
from mlbackends.model.records import Presence, Report
from mlbackends.testing.machine import Machine, current, forget, make_current
from mlbackends.testing.sharing import shared

HOST = str(Path(__file__).resolve().parents[2] / "hosts" / "ivy-bridge-desktop")


class Asked:
    """Answers from a recorded machine, and remembers what it was asked."""

    def __init__(self) -> None:
        self.names: list[tuple[str, ...]] = []

    def __call__(self, names: tuple[str, ...]) -> Report:
        from msgspec.structs import replace

        self.names.append(names)
        whole = report_of(HOST)
        return replace(whole, probes={name: whole.probes[name] for name in names})


def test_a_probe_is_asked_once_for_all(tmp_path: Path) -> None:
    asked = Asked()
    first = shared(str(tmp_path), "usable", ("cpu",), asked)
    second = shared(str(tmp_path), "usable", ("cpu", "mps"), asked)
    third = shared(str(tmp_path), "usable", ("mps",), asked)

    assert asked.names == [("cpu",), ("mps",)]
    assert second == third
    assert second.probes["cpu"] == first.probes["cpu"]


def test_what_was_asked_less_deeply_is_not_taken(tmp_path: Path) -> None:
    asked = Asked()
    shared(str(tmp_path), "found", ("cpu",), asked)
    shared(str(tmp_path), "usable", ("cpu",), asked)

    assert asked.names == [("cpu",), ("cpu",)]


@pytest.mark.parametrize("left", [b"", b"{", b'{"schema": 1}', b"\xff"])
def test_a_file_that_was_cut_off_is_written_again(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "usable.json").write_bytes(left)
    asked = Asked()

    assert "cpu" in shared(str(tmp_path), "usable", ("cpu",), asked).probes
    shared(str(tmp_path), "usable", ("cpu",), asked)
    assert len(asked.names) == 1


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

    from mlbackends.model.errors import BadInput

    file = tmp_path / "part.json"
    file.write_bytes(msgspec.json.encode(Asked()(("cpu",))))

    with pytest.raises(BadInput, match="says nothing about cudnn"):
        Machine(str(file)).report(("cpu", "cudnn"))


def test_the_run_that_ends_gives_the_machine_back() -> None:
    before, machine = current(), Machine(HOST)
    make_current(machine)
    inside = current()
    forget(machine)

    assert inside is machine
    assert current() is before
