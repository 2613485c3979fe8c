"""The table of docs/systems.md, what was tried where: ``table.py --write`` or ``--check``.

It is made of results/*.json, which the jobs of .ci/systems wrote; of by_hand.toml; and of the recorded
machines in tests/hosts. A cell that no result fills says no.
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from mlbackends.host.archive import read

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent
PAGE = TESTS.parent / "docs" / "systems.md"
BEGIN, END = "<!-- tests/systems/table.py -->\n", "<!-- the end -->\n"
HEAD = """\
| | on real hardware | emulated | on recorded machines or stub libraries |
| --- | --- | --- | --- |
"""
#: A row's name by system and processor, as Python spells them.
ROWS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Linux x86-64": ("Linux", ("x86_64",)),
    "Linux aarch64": ("Linux", ("aarch64",)),
    "Linux riscv64": ("Linux", ("riscv64",)),
    "Linux s390x, big-endian": ("Linux", ("s390x",)),
    "Linux ppc64le": ("Linux", ("ppc64le",)),
    "Windows x86-64": ("Windows", ("AMD64",)),
    "macOS": ("Darwin", ("arm64", "x86_64")),
}
PLATFORMS = {"Linux": "linux", "Windows": "win32", "Darwin": "darwin"}


def table() -> str:
    """Return the table in Markdown."""
    results = [
        json.loads(file.read_text(encoding="utf-8")) for file in sorted((HERE / "results").glob("*.json"))
    ]
    by_hand = tomllib.loads((HERE / "by_hand.toml").read_text(encoding="utf-8"))
    apart = [result for result in results if "row" in result]
    results = [result for result in results if "row" not in result]
    rows = []
    for name, (system, machines) in ROWS.items():
        own = [result for result in results if result["system"] == system and result["machine"] in machines]
        cells = empty()
        for how in dict.fromkeys(result["how"] for result in own):
            column = "emulated" if how.startswith(("qemu", "Wine")) else "real"
            runs = "; ".join(summary(result) for result in own if result["how"] == how)
            cells[column].append(f"{how}: {runs}" if column == "emulated" else runs)
        count = recorded(PLATFORMS[system], machines)
        if count:
            cells["recorded"].append(f"{count} machine{'s' if count > 1 else ''}")
        rows.append((name, add(cells, by_hand.get(name, {}))))
    rows += [
        (result["row"], {**empty(), result.get("column", "real"): [summary(result)]}) for result in apart
    ]
    rows += [(name, add(empty(), cells)) for name, cells in by_hand.items() if name not in ROWS]
    return HEAD + "".join(
        f"| {name} | {'<br>'.join(cells['real']) or 'no'} | {'<br>'.join(cells['emulated'])} |"
        f" {'<br>'.join(cells['recorded'])} |\n"
        for name, cells in rows
    )


def empty() -> dict[str, list[str]]:
    """Return a row's cells without text."""
    return {"real": [], "emulated": [], "recorded": []}


def add(cells: dict[str, list[str]], more: dict[str, str]) -> dict[str, list[str]]:
    return {column: [*texts, *filter(None, [more.get(column)])] for column, texts in cells.items()}


def summary(result: dict[str, Any]) -> str:
    """Return one run in a few words: which Python, what it passed, and when."""
    tests, checks = result["tests"].values(), result["checks"]
    passed, failed, listed = (
        sum(test.get(key, 0) for test in tests) for key in ("passed", "failed", "listed")
    )
    python = f"Python {result['python']}{', free-threaded' if result['free_threaded'] else ''}"
    done = [f"{sum(not check for check in checks.values())} of {len(checks)} checks"]
    if passed:
        done.append(f"{passed:,} tests")
    done += [f"{failed} failed"] if failed else []
    done += [f"[{listed} cannot](../tests/systems/not_here.toml)"] if listed else []
    done += [f"native attention ({result['native']})"] if result["native"] else []
    done += [f"{' and '.join(result['not_run'])} not run"] if result.get("not_run") else []
    # Parts may have run at several commits.
    ran = [row for row in (result, *tests) if "commit" in row]
    when = dict.fromkeys(row[key] for key in ("date", "commit") for row in ran)
    return f"{python}: {', '.join(done)} ({', '.join(when)})"


def recorded(platform: str, machines: tuple[str, ...]) -> int:
    """Return the number of machine descriptions of a kind in tests/hosts."""
    count = 0
    for file in (TESTS / "hosts").glob("*.machine"):
        description = read(str(file)).entries["host.json"]
        assert isinstance(description, bytes | str)
        host = json.loads(description)
        count += host["platform"] == platform and host["uname"]["machine"] in machines
    return count


def renewed() -> str:
    """Return docs/systems.md with the table as it must be."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(renewed(), encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != renewed():
        sys.exit("docs/systems.md: the table is stale: python tests/systems/table.py --write")
