"""`backends sdpa bench`: backends timed in turn, how they compare, the picture, and a saved run."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from attention_runs import ran, ran_alone
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from mlbackends.base.installed import install_command
from mlbackends.model.benched import SCHEMA, Benched, BenchedProblem, Ratio
from mlbackends.model.checked import Checked, CheckedProblem, Ended, Result, Timing
from mlbackends.model.records import Device
from mlbackends.sdpa.problem_text import parse
from mlbackends.sdpa.verify.speed import compared
from mlbackends_cli.attention import tables
from mlbackends_cli.attention.chart import picture, sheet
from mlbackends_cli.charts.svg import drawing, why_no_png
from mlbackends_cli.report.commands.schema import SCHEMAS
from mlbackends_cli.terminal import Page

if TYPE_CHECKING:
    from pathlib import Path

GRID = ("--shape", "1,1,8,16", "--shape", "1,1,16,16", "--rounds", "1", "--backend", "math")


def problem(text: str, **seconds: float) -> BenchedProblem:
    (wording,) = parse(text)
    results = tuple(
        Result(
            backend=name,
            answers_to="MATH",
            ended=Ended.RAN,
            command="",
            peer=name.startswith("torch"),
            timing=Timing(3, own, own * 0.9, own * 1.1, 1e-3 / own, 1e-5 / own),
        )
        for name, own in seconds.items()
    )
    checked = CheckedProblem(
        text,
        wording.problem(Device("cpu", 0)),
        "math",
        "MATH",
        1_000_000,
        results,
        0.0,
        100.0,
        "a product",
    )
    ratios = tuple(
        Ratio(backend, two, seconds[two] / seconds[backend], 1.0, 2.0)
        for backend in seconds
        for two in seconds
        if backend != two
    )
    return BenchedProblem(checked, 4096, wording.shape[-2], "--shape 1,1,L,16", ratios)


def run(*problems: BenchedProblem) -> Benched:
    return Benched(SCHEMA, "backends 1", "2026-01-01T00:00:00Z", "a CPU <1>", 2, 3, problems, 1e10, "a copy")


SAMPLE = run(
    problem("--shape 1,1,64,16", math=4e-5, torch_flash=1e-5),
    problem("--shape 1,1,128,16", math=8e-5, torch_flash=2e-5),
)


def steady(saved: Path) -> None:
    """Take all times of a saved run for stable, on whatever machine it was made."""
    data: dict[str, Any] = msgspec.json.decode(saved.read_bytes())
    for row in data["problems"]:
        for result in row["checked"]["results"]:
            if result["timing"]:
                result["timing"]["unstable"] = ""
    saved.write_bytes(msgspec.json.encode(data))


def test_a_run_is_saved_drawn_and_compared(tmp_path: Path) -> None:
    saved, drawn = tmp_path / "then.json", tmp_path / "speed.svg"
    words = ("--format", "json", "--output", str(saved), "--plot", str(drawn))
    done = ran_alone("bench", *GRID, *words)
    data: dict[str, Any] = msgspec.json.decode(saved.read_bytes())
    steady(saved)
    again = ran("bench", *GRID, "--compare", str(saved), "--fail-below", "100")

    assert done.returncode == 0, done.stderr
    Draft202012Validator(SCHEMAS["sdpa-bench"]()).validate(data)
    assert [row["kind"] for row in data["problems"]] == ["--shape 1,1,L,16"] * 2
    assert data["bandwidth_bytes_per_second"] > 0
    assert ET.fromstring(drawn.read_text()).tag.endswith("svg")
    assert again.returncode == 1
    assert "× saved" in again.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--against", "mth"), "did you mean 'math'?"),
        (("--fail-below", "0.9"), "--compare"),
        (("--compare", "/nonexistent"), "cannot be read"),
        (("--rounds", "0"), "--rounds"),
        (("--plot", "speed.pdf"), "FILE.svg or FILE.png"),
        (("--plot", "/nonexistent/speed.svg"), "there is no folder /nonexistent"),
        (("--output", "/"), "it is a folder"),
        (("--output", "x.svg", "--plot", "./x.svg"), "two outputs would be written to ./x.svg"),
        (("--plot", "-"), "two outputs would be written to standard output"),
        (("--python", sys.executable), "no peer was chosen"),
        (("--device", "sm90"), "is not a CPU or CUDA device of this machine"),
    ],
)
def test_what_makes_no_sense_exits_2(words: tuple[str, ...], said: str) -> None:
    done = ran("bench", "--shape", "1,1,8,8", *words)

    assert done.returncode == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[1]", b"{" * 5000, b"\xff", msgspec.json.encode(replace(SAMPLE, schema="x/1"))],
)
def test_a_file_that_is_no_saved_run_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "then.json"
    path.write_bytes(data)
    done = ran("bench", "--shape", "1,1,8,8", "--compare", str(path))

    assert done.returncode == 2
    assert str(path) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_saved_run_of_other_problems_is_refused_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "then.json"
    path.write_bytes(msgspec.json.encode(SAMPLE))
    done = ran("bench", "--shape", "1,1,8,8", "--compare", str(path))

    assert done.returncode == 2
    assert "nothing to compare\nhint: it has --shape 1,1,64,16, --shape" in done.stderr


def test_who_was_timed_then_and_does_not_run_now_fails_below_any_ratio(tmp_path: Path) -> None:
    path = tmp_path / "then.json"
    path.write_bytes(msgspec.json.encode(run(problem("--shape 1,1,8,8", math=1e3, efficient_cuda=1.0))))
    words = ("--shape", "1,1,8,8", "--rounds", "1", "--compare", str(path), "--fail-below", "1e-9")
    gone = ran("bench", *words)
    unasked = ran("bench", *words, "--backend", "math")

    assert gone.returncode == 1
    assert "efficient_cuda: needs cuda tensors; these are on cpu" in gone.stdout
    assert unasked.returncode == 0, unasked.stdout


def test_whom_to_compare_with_is_run_as_well() -> None:
    done = ran("bench", "--shape", "1,1,8,8", "--rounds", "1", "--against", "torch_flash")

    assert done.returncode == 0
    assert "torch_flash" in done.stdout
    if "torch_flash: " in done.stdout:  # it is not installed, which is told
        assert "× torch_flash" not in done.stdout


def test_where_no_backend_ran_the_reasons_are_told(tmp_path: Path) -> None:
    words = ("--shape", "1,1,8,8", "--rounds", "1", "--plot", str(tmp_path / "speed.svg"))
    none = ran("bench", *words, "--dtype", "int8")
    some = ran("bench", *words, "--dtype", "int8,float32", "--backend", "math")

    assert none.returncode == some.returncode == 3
    assert "math: the dtype is int8" in none.stdout
    assert "1 round: no backend ran\n" in none.stdout
    assert "1 round: no backend ran for 1 of 2\n" in some.stdout


def test_others_are_compared_with_the_first_peer() -> None:
    base = tables.baseline(SAMPLE)
    text = tables.bench_text(SAMPLE, Page(width=200), base)

    assert base == "torch_flash"
    assert text.count("× torch_flash") == 3  # two heads, and what they mean
    assert "0.25" in text


def test_without_a_peer_they_are_compared_with_the_slowest() -> None:
    assert tables.baseline(run(problem("--shape 1,1,64,16", math=4e-5, other=1e-5))) == "math"
    assert tables.baseline(run()) == ""


@pytest.mark.parametrize(("seconds", "share"), [(9.9e-6, "101%"), (1e-5, "100%"), (0.1, "0%")])
def test_what_is_faster_than_the_peak_is_explained(seconds: float, share: str) -> None:
    timed = problem("--shape 1,1,64,16", math=seconds)
    checked = Checked("", "", "", "", 2, (timed.checked,))
    for text in (
        tables.bench_text(run(timed), Page(width=200), "math"),
        tables.check_text(checked, Page(width=200)),
    ):
        assert f" {share}" in text
        assert ("more than 100% of the peak: " in text) is (share == "101%")


def test_what_changed_is_told_by_time_and_by_share_of_the_peak() -> None:
    faster = run(problem("--shape 1,1,64,16", math=2e-5), problem("--shape 1,1,7,16", math=1.0))
    now = compared(faster, SAMPLE)

    assert [change.by_time for change in now.problems[0].changes] == [2.0]
    assert [change.by_share for change in now.problems[0].changes] == [2.0]
    assert now.problems[1].changes == ()


def test_a_picture_in_png_has_two_pixels_for_each_of_the_drawing(tmp_path: Path) -> None:
    if (reason := why_no_png()) is not None:
        pytest.skip(f"{reason} here")
    path = tmp_path / "speed.PNG"
    data = drawing(str(path), sheet)(SAMPLE)
    width = ET.fromstring(picture(SAMPLE)).get("width", "")

    assert isinstance(data, bytes)
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert int.from_bytes(data[16:20], "big") == 2 * int(width)


@pytest.mark.parametrize(
    ("missing", "said", "advised"),
    [
        ("resvg_py", "needs resvg-py", install_command("png")),
        pytest.param(
            "font",
            "needs a font",
            "install a font",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="fontconfig lists the fonts"),
        ),
    ],
)
def test_what_png_lacks_is_told_before_anything_runs(
    missing: str, said: str, advised: str, tmp_path: Path
) -> None:
    (tmp_path / "resvg_py.py").write_text("raise ImportError\n")
    (tmp_path / "fonts.conf").write_text("<fontconfig><dir>/nonexistent</dir></fontconfig>")
    environment = {
        "resvg_py": {"PYTHONPATH": str(tmp_path)},
        "font": {"FONTCONFIG_FILE": str(tmp_path / "fonts.conf")},
    }[missing]
    plot = str(tmp_path / "speed.png")
    done = ran_alone("bench", *GRID, "--plot", plot, environment=environment)

    assert done.returncode == 2
    assert said in done.stderr and advised in done.stderr
    assert done.stdout == ""
