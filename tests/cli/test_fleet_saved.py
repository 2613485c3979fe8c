"""A saved fleet may hold anything: what it says is shown without commands, and never ends in a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from running import backends

if TYPE_CHECKING:
    from collections.abc import Iterator

HOSTS = Path(__file__).parents[1] / "hosts"
ESCAPE = "\x1b]0;title\x07"
COMMANDS = (
    "summarize FLEET --all", "summarize FLEET --format markdown", "summarize FLEET --format html",
    "summarize FLEET --format json", "diff FLEET GOOD", "facts cpu.model_name FLEET", "doctor FLEET",
)  # fmt: skip
Place = tuple[str | int, ...]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("reports")
    for name in ("wsl1-laptop", "slurm-job"):
        report = backends("info", "--root", str(HOSTS / f"{name}.machine"), "--format", "json").stdout
        (folder / f"{name}.json").write_text(report)
    return json.loads(backends("fleet", "summarize", str(folder), "--hazards", "--format", "json").stdout)


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the places of values, of each list and of each table with many keys the first two."""
    yield place
    entries: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, item in [*entries][: 99 if len(place) < 1 else 5]:
        yield from places(item, (*place, key))


def changed(value: Any, place: Place, change: Any) -> Any:
    if not place:
        return change(value)
    entries: Any = dict(value) if isinstance(value, dict) else [*value]
    entries[place[0]] = changed(value[place[0]], place[1:], change)
    return entries


def escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value + ESCAPE
    if isinstance(value, dict):
        return {key + ESCAPE: item for key, item in value.items()}
    return value


CHANGES = {
    "escape": escaped, "list": lambda _: [], "table": lambda _: {}, "null": lambda _: None,
    "number": lambda _: -1e308, "nested": lambda value: [value], "text": lambda _: "-x[1-",
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_any_fleet_is_read_or_refused(fleet: Any, change: str, tmp_path: Path) -> None:
    path, good = tmp_path / "fleet.json", tmp_path / "good.json"
    good.write_text(json.dumps(fleet))
    for number, place in enumerate(sorted(places(fleet), key=str)):
        if place in {(), ("schema",)}:
            continue
        path.write_text(json.dumps(changed(fleet, place, CHANGES[change])))
        command = COMMANDS[number % len(COMMANDS)]
        for words in {COMMANDS[0], command}:
            names = words.replace("FLEET", str(path)).replace("GOOD", str(good)).split()
            done = backends("fleet", *names)
            assert done.returncode in (0, 1, 2, 3), (place, words, done.stderr)
            assert not {"\x1b", "\x07"} & {*done.stdout, *done.stderr}, (place, words)


def test_what_powershell_saved_is_read(fleet: Any, tmp_path: Path) -> None:
    text = json.dumps(fleet)
    (tmp_path / "narrow.json").write_text(text)
    (tmp_path / "wide.json").write_text(f"{text}\r\n", encoding="utf-16")
    printed = [backends("fleet", "summarize", str(tmp_path / name)) for name in ("narrow.json", "wide.json")]
    assert printed[0].stdout.startswith("2 nodes:")
    assert (printed[1].returncode, printed[1].stdout) == (printed[0].returncode, printed[0].stdout)
