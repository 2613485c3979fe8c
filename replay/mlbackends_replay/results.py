"""What the command answers about a rebuilt case, whether that is the thread's cause, and the table of all."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping

import msgspec
from msgspec import Struct

from mlbackends_replay.cases import FOLDER, Case, every
from mlbackends_replay.rebuild import NotRebuilt

_FILE = os.path.join(os.path.dirname(FOLDER), "results.json")
_PAGE = os.path.join(os.path.dirname(os.path.dirname(FOLDER)), "docs", "replay.md")
#: Longer than any answer takes.
_SECONDS = 300


class Result(Struct, frozen=True, omit_defaults=True):
    """The answer for a case.

    not_rebuilt: why there is none. line: how the answer begins. verdict, name: of its first fault. agrees:
    whether the line has the thread's cause.
    """

    not_rebuilt: str = ""
    line: str = ""
    verdict: str = ""
    name: str = ""
    agrees: bool = False


def answer(case: Case, folder: str) -> Result:
    """Ask the case's question of its environment. Raises NotRebuilt where the command fails."""
    site = f"/usr/local/lib/python{case.python}/site-packages"
    words = shlex.split(case.command.replace("SITE", site))
    where = ["--root", folder] if words[0] == "resolve" else [folder]
    text = [line for line in _run([*words, *where]).splitlines() if line.strip()]
    if words[0] != "resolve":
        line = ": ".join(part.strip() for part in text[:2])  # a hazard's code, and what was found
        return Result(line=line, agrees=any(word in line for word in case.words))
    data = msgspec.json.decode(_run([*words, *where, "--format", "json"]))
    package = data["packages"][0]
    faults = [*package.get("faults", ()), *package.get("fallbacks", ())]
    name = faults[0]["name"] if faults else ""
    line = text[0].strip()
    line += f": {faults[0]['message']}" if faults else ""
    agrees = name in case.words and package["verdict"] == case.verdict and name in line
    return Result("", line.replace(site, "SITE").replace(folder, ""), package["verdict"], name, agrees)


def _run(arguments: list[str]) -> str:
    environment = {**os.environ, "COLUMNS": "400", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-m", "mlbackends", *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        env=environment,
        check=False,
        encoding="utf-8",
    )
    if not done.stdout:
        raise NotRebuilt(f"`backends {shlex.join(arguments)}` failed: {done.stderr.strip()[-300:]}")
    return done.stdout


# ---- what is shown ---------------------------------------------------------------------------------------


def shown(case: Case, result: Result) -> str:
    """Return one case: the link, the question, the answer, and what ended it there."""
    sign = "✓" if result.agrees else "✗"
    rows = [
        ("thread", f"{case.thread}: {case.title}"),
        ("", case.url),
        ("there", case.message),
        ("cause", case.cause),
        ("rebuilt", ", ".join(case.wheels) + f" for Python {case.python} on {case.machine}"),
        ("differs", case.stand_in),
        ("asked", f"backends {case.command}"),
        ("answer", f"{sign} {result.line or f'not rebuilt: {result.not_rebuilt}'}"),
        (
            "why not",
            ""
            if result.agrees or not result.line
            else case.miss or f"wanted {case.words[0]}, {case.verdict}",
        ),
        ("ended by", case.ended_by),
    ]
    return "\n".join(f"{name:8}  {text}" for name, text in rows if text)


def overview(rows: Iterable[tuple[Case, Result]], count: int) -> str:
    """Return a line for each case, and how many agree. count: of all that were asked for."""
    rows = list(rows)
    lines = []
    for case, result in rows:
        sign = "✓" if result.agrees else "✗" if result.line else "-"
        lines.append(f"{sign} {case.thread:44} {result.line or result.not_rebuilt}")
    rebuilt = [result for _, result in rows if result.line]
    agreeing = sum(result.agrees for result in rebuilt)
    total = f"{agreeing} of {len(rebuilt)} answers begin with the thread's cause"
    left = count - len(rows)
    return "\n".join([*lines, "", total + f"; {left} without their wheels: --download" * bool(left)])


def recorded() -> dict[str, Result]:
    """Return the recorded results by case."""
    if not os.path.exists(_FILE):
        return {}
    with open(_FILE, "rb") as file:
        return msgspec.json.decode(file.read(), type=dict[str, Result])


def record(answers: Mapping[str, Result]) -> None:
    """Record results, and write the page anew. A result that could not be had leaves the recorded one."""
    cases = {case.name for case in every()}
    kept = {name: result for name, result in recorded().items() if name in cases}
    kept |= {
        name: result
        for name, result in answers.items()
        if name in cases and (result.line or name not in kept)
    }
    ordered = dict(sorted(kept.items()))
    with open(_FILE, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(ordered), indent=1) + b"\n")
    with open(_PAGE, "w", encoding="utf-8") as page_file:
        page_file.write(page(ordered))


def page(results: Mapping[str, Result]) -> str:
    """Return docs/replay.md for some results."""
    cases = sorted(every(), key=lambda case: case.thread.lower())
    rebuilt = [case for case in cases if case.name in results and results[case.name].line]
    agreeing = [case for case in rebuilt if results[case.name].agrees]
    lines = [
        "# Public issues, replayed",
        "",
        f"{len(cases)} public threads in which somebody lost time to their environment. Of {len(rebuilt)}",
        "the environment was rebuilt from real wheels, without a GPU and without importing anything, and",
        f"`backends resolve` was run on it. {len(agreeing)} answers begin with the thread's cause: the same",
        "verdict, and the missing library, symbol, version or chip exactly as named there.",
        "[replay/](../replay/README.md) has the cases and explains how to run them:",
        "`python replay vllm#44335`. `python replay --download --update` writes this page.",
        "",
        "| thread | question | answer | ended there by |",
        "| --- | --- | --- | --- |",
    ]
    for case in rebuilt:
        result = results[case.name]
        sign = "✓" if result.agrees else "✗"
        cells = f"[{case.thread}]({case.url})", f"`{case.command}`", f"{sign} {_cell(result.line)}"
        lines.append(f"| {' | '.join(cells)} | {_cell(case.ended_by)} |")
    missed = [case for case in rebuilt if case not in agreeing]
    if missed:
        lines += ["", "## Misses", ""]
        lines += [
            f"- {case.thread}: wanted `{case.words[0]}`, {case.verdict}. {case.miss}" for case in missed
        ]
    absent = [case for case in cases if case not in rebuilt]
    if absent:
        lines += ["", "## Not rebuilt", ""]
        reasons = [
            (case, results[case.name].not_rebuilt if case.name in results else "not tried") for case in absent
        ]
        lines += [f"- [{case.thread}]({case.url}): {reason}" for case, reason in reasons]
    lines += ["", "## What differs from the threads", ""]
    lines += [f"- {case.thread}: {case.stand_in}" for case in cases if case.stand_in]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("_", "\\_").replace("*", "\\*")
