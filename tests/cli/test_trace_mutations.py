"""Damaged traces in every view and format: no line, however damaged, ends a command with a fault.

Each input is a few lines of the logs in tests/traces, mutated, and goes through one view in one format
or through a comparison; the choices follow from a seed, which a failure names. The slow test makes
more of them; `python tests/cli/test_trace_mutations.py 100000` makes so many and prints what fails.
"""

from __future__ import annotations

import csv
import io
import json
import random
import re
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from running import backends

TRACES = Path(__file__).resolve().parents[1] / "traces"
LINES = sorted({line for log in TRACES.glob("*.log") for line in log.read_bytes().splitlines()})
OF_LIBRARIES = [line for line in LINES if re.search(rb"_verbose,|MKL_VERBOSE|MKL ERROR", line)]
VIEWS = ("summary", "findings", "dispatch", "roofline", "records")
FORMATS = ["table", "json", "jsonl", "csv", "markdown", "html", "perfetto"]
FORMATS += ["parquet"] if find_spec("pyarrow") else []
OPTIONS = (
    *((), (), (), ("--top", "0"), ("--skip-first", "1"), ("--of", "all"), ("--this-machine",)),
    *(("--group-by", "operation,parameters,shape"), ("--group-by", "raw"), ("--list-malformed",)),
    *(("--where", "flops>1"), ("--where", "raw~x"), ("--where", "arguments.m>3")),
)
PIECES = (
    *(b"9" * 400, b"9" * 5000, b"-1", b"0", b"", b"5x12", b"1e400", b"nan", b"inf", b"1,5"),
    *(b"\xa7", b"\xff\xfe", b"\0", b"\r", b"\x1b[31m", b"\xed\xa0\x80", "٣²".encode(), b"*", b"%n"),
    *(b",", b":", b"x", b"(", b")", b"{", b"}", b" ", b",,", b"::", b"-", b"+", b";", b"|", b"'"),
    *(b"1" * 40, b"9223372036854775808", b"18446744073709551616", b"0x0", b"undef", b"any", b"GPU0"),
)  # fmt: skip
SEED = 12
csv.field_size_limit(1 << 20)


def mutated(dice: random.Random, line: bytes) -> bytes:
    """Return a line with one to three pieces of damage."""
    for _ in range(dice.randint(1, 3)):
        words = [match.span() for match in re.finditer(rb"[0-9]+|[A-Za-z_]+|[^\w]+", line)] or [(0, 0)]
        begin, end = dice.choice(words)
        match dice.randrange(7):
            case 0 | 1 | 2:  # another word in its place
                line = line[:begin] + dice.choice(PIECES) + line[end:]
            case 3:  # more in it
                line = line[:end] + dice.choice(PIECES) + line[end:]
            case 4:  # any byte
                line = line[:begin] + bytes([dice.randrange(256)]) + line[begin + 1 :]
            case 5:  # cut short, or without its middle
                line = line[:begin] + line[dice.choice(words)[1] :]
            case _:  # the end of another line, as where two tore each other
                other = dice.choice(OF_LIBRARIES)
                line = line[:begin] + other[dice.randrange(len(other)) :]
    return line


def made_log(dice: random.Random) -> bytes:
    """Return a log: some lines as they are, some damaged, some of them again."""
    lines = [mutated(dice, dice.choice(OF_LIBRARIES)) for _ in range(dice.randint(1, 4))]
    lines += dice.choices(LINES, k=dice.randint(0, 2))
    lines += dice.choices(lines, k=dice.randint(0, 3))
    return b"\n".join(lines) + dice.choice((b"\n", b"\n", b"\r\n", b""))


def fault(seed: str, folder: Path) -> str:
    """Make an input and return what is wrong with what comes out of it, "" if nothing is."""
    dice = random.Random(seed)
    logs = [folder / "a.log", folder / "b.log"]
    for log in logs:
        log.write_bytes(made_log(dice))
    view, form = dice.choice(VIEWS), dice.choice(FORMATS)
    words = ["show", str(logs[0]), *dice.choice(OPTIONS)]
    if dice.randrange(10) == 0:
        form = dice.choice(("table", "json", "csv", "markdown"))
        words = ["diff", *map(str, logs), "--format", form]
    elif form in {"html", "perfetto", "parquet"}:
        words += [
            "--format",
            form,
            *(("--output", str(folder / "out")) if form == "parquet" else ()),
        ]
    else:
        words += ["--format", form, "--view", view]
    ended = backends("trace", *words)
    problem = ""
    if ended.returncode not in {0, 1, 2, 3} or "Traceback" in ended.stderr:
        problem = f"it ended with {ended.returncode}: {ended.stderr[-2000:]}"
    elif ended.returncode == 2 and "usage" not in ended.stderr.lower() and "hint" not in ended.stderr:
        problem = "" if len(ended.stderr.splitlines()) <= 2 else ended.stderr
    elif ended.returncode == 0 and form in {"json", "jsonl"} and "--list-malformed" not in words:
        try:
            for line in ended.stdout.splitlines() if form == "jsonl" else [ended.stdout]:
                json.loads(line)
        except ValueError as error:
            problem = f"what came is no JSON: {error}"
    elif ended.returncode == 0 and form == "csv" and "--list-malformed" not in words:
        lengths = {len(row) for row in csv.reader(io.StringIO(ended.stdout, newline=""))}
        problem = f"rows have {sorted(lengths)} columns" if len(lengths) > 1 else ""
    return f"{seed}: backends trace {' '.join(words)}: {problem}" if problem else ""


def test_no_damaged_line_ends_a_view_with_a_fault(tmp_path: Path) -> None:
    found = (fault(f"{SEED} {number}", tmp_path) for number in range(25))

    assert list(filter(None, found)) == []


@pytest.mark.slow
def test_no_damaged_line_of_many_ends_a_view_with_a_fault(tmp_path: Path) -> None:
    found = (fault(f"{SEED} many {number}", tmp_path) for number in range(800))

    assert list(filter(None, found)) == []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        for place in range(int(sys.argv[1])):
            if said := fault(f"more {sys.argv[2] if len(sys.argv) > 2 else ''} {place}", Path(scratch)):
                print(said, flush=True)
