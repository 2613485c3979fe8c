"""Plots as SVG and in characters, and the pages of `sdpa check` and `sdpa bench`."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from attention_runs import ran
from msgspec.structs import replace
from running import Reader
from test_sdpa_bench import SAMPLE, problem, run

from mlbackends.base.reasons import Reason
from mlbackends.model.checked import SCHEMA, Checked, Ended, Errors
from mlbackends_cli.attention import tables
from mlbackends_cli.attention.chart import picture, plots
from mlbackends_cli.attention.page import bench_page, check_page
from mlbackends_cli.charts import plot
from mlbackends_cli.charts.plot import Logarithmic, Plot, Point, Series
from mlbackends_cli.terminal import Page

if TYPE_CHECKING:
    from pathlib import Path

    from mlbackends.model.benched import Benched, BenchedProblem

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</svg><script>alert(1)</script>&\x1b[31m"


def changed(one: BenchedProblem, backend: str, **fields: Any) -> BenchedProblem:
    """Return the problem with another result of one backend."""
    results = tuple(
        replace(result, **fields) if result.backend == backend else result for result in one.checked.results
    )
    return replace(one, checked=replace(one.checked, results=results))


def timed_out(one: BenchedProblem, backend: str, why: str = "no answer within 60 s") -> BenchedProblem:
    reasons = (Reason("timed-out", why),)
    return changed(one, backend, ended=Ended.TIMED_OUT, timing=None, reasons=reasons)


def kinds(count: int) -> Benched:
    """Return a run of so many kinds of problems, some of whose words are long."""
    words = " --kv-heads 8 --gqa --mask bool:1024,1024 --dtype bfloat16 --backward"
    found = []
    for number in range(count):
        for length in (64, 4096):
            name = f"--shape {number + 1},1,{length},16"
            each = problem(name, math=4e-5, torch_flash=1e-5, a_backend_of_a_long_name=3e-5)
            kind = f"--shape {number + 1},1,L,16{words if number % 2 else ''}"
            found.append(replace(each, kind=kind))
    return run(*found)


WITHOUT = run(
    problem("--shape 1,1,64,16", math=4e-5, torch_flash=1e-5),
    timed_out(problem("--shape 1,1,128,16", math=8e-5, torch_flash=2e-5), "math"),
    problem("--shape 1,1,256,16", math=9e-5, torch_flash=3e-5),
)


def texts(root: ET.Element) -> list[str]:
    return [node.text or "" for node in root.iter(f"{SVG}text")]


def shapes(root: ET.Element, kind: str) -> list[ET.Element]:
    return [node for node in root.iter(f"{SVG}path") if kind in node.get("class", "").split()]


@pytest.mark.parametrize("benched", [SAMPLE, WITHOUT, run(), *map(kinds, (1, 2, 3, 5, 14))])
def test_no_text_of_a_picture_is_beyond_its_edge(benched: Benched) -> None:
    root = ET.fromstring(picture(benched))
    _, _, width, height = map(float, root.get("viewBox", "").split())
    sizes = {"axis": 13, "bold": 14, "headline": 21, "": 13}
    for text in root.iter(f"{SVG}text"):
        shown = "".join(text.itertext()) if text.find(f"{SVG}title") is None else text[0].tail or ""
        long = len(shown) * sizes[text.get("class", "").partition(" ")[0]] * 0.5
        x, anchor = float(text.get("x", "")), text.get("text-anchor", "start")
        left = {"start": x, "middle": x - long / 2, "end": x - long}[anchor]
        assert left >= 0 and left + long <= width, shown
        assert 10 <= float(text.get("y", "")) <= height - 3, shown


@pytest.mark.parametrize("numbers", [[3.0], [0.25, 60], [37, 325], [1e-300, 1e300]])
def test_ticks_are_round_numbers_apart_from_each_other(numbers: list[float]) -> None:
    axis = Logarithmic(numbers, 0, 200)
    ticks = axis.ticks(20)

    assert len(ticks) >= 2
    assert all(axis.at(right) - axis.at(left) > 19 for left, right in pairwise(ticks))
    assert {f"{tick:.1e}"[:3] for tick in ticks} <= {"1.0", "2.0", "5.0"}


def test_what_a_backend_could_not_do_is_a_cross_with_its_reason() -> None:
    root = ET.fromstring(picture(WITHOUT))
    (cross,) = shapes(root, "cross")
    title = cross.find(f"{SVG}title")
    assert title is not None and title.text == "math at 128: no answer within 60 s"
    assert "✗ math at 128: no answer within 60 s" in texts(root)
    # Nothing leads over the gap: two parts of math, one line of torch_flash.
    assert [shape.get("class") for shape in shapes(root, "line")].count("series s0 line") == 2


def test_a_wrong_result_is_no_point_however_fast() -> None:
    errors = Errors(1.0, 1.0, 1e-6, 1e6)
    wrong = changed(problem("--shape 1,1,64,16", math=4e-5, torch_flash=1e-9), "torch_flash", errors=errors)
    lengths, roofline = plots(run(wrong))
    (series,) = [curve for curve in lengths.series if curve.name == "torch_flash"]
    assert series.points == ()
    assert series.missing[0][1].startswith("wrong: the largest error is 1")
    assert all(not curve.points for curve in roofline.series if curve.name == "torch_flash")


def test_an_unstable_time_is_hollow() -> None:
    steady = problem("--shape 1,1,64,16", math=4e-5)
    (result,) = steady.checked.results
    assert result.timing is not None
    unstable = changed(steady, "math", timing=replace(result.timing, unstable="it waited"))
    drawn = picture(run(unstable))
    assert drawn.count(' hollow"') == 2
    assert "hollow: the time is unstable" in drawn
    assert "~: the time is unstable" in plot.printed(plots(run(unstable)), Page(unicode=False))


def test_one_length_is_drawn_as_bars_the_fastest_first_and_names_its_problem() -> None:
    alone = run(problem("--shape 1,1,64,16", math=4e-5, flash_cpu=1e-5))
    (bars, _), text = plots(alone), plot.printed(plots(alone), Page(width=60))
    lines = text.splitlines()

    assert bars.title == f"Speed of 1,1,64,16 · {alone.processor}"
    assert [line.split()[0] for line in lines[1:3]] == ["flash_cpu", "math"]
    assert lines[1].count("█") == pytest.approx(4 * lines[2].count("█"), abs=2)
    assert max(map(len, lines)) <= 60
    widths = [
        float(node.attrib["width"])
        for node in ET.fromstring(picture(alone))
        if "dot" in node.attrib.get("class", "") and "width" in node.attrib
    ]
    assert widths[0] == pytest.approx(4 * widths[1], rel=0.01)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_a_plot_in_characters_fits_the_page(width: int, unicode: bool) -> None:
    text = plot.printed(plots(WITHOUT), Page(width=width, unicode=unicode))
    assert max(map(len, text.splitlines())) <= width
    assert text.isascii() is not unicode
    assert "\x1b" not in text
    for name in ("length of the keys", "GFLOP/s", "math", "torch_flash", "64", "256"):
        assert name in text
    assert f"{'✗' if unicode else 'x'} math at 128: no answer within" in " ".join(text.split())


def test_bars_of_one_place_are_together_the_highest_first() -> None:
    series = (
        Series("up", (Point(1, 1, ""), Point(10, 10, ""))),
        Series("down", (Point(1, 5, ""),)),
    )
    lines = plot.printed([Plot("speeds", "x", "y", series)], Page(width=40)).splitlines()

    assert [line.split()[0] for line in lines] == ["speeds", "x:", "down", "up", "x:", "up"]
    assert [line.count("█") for line in lines if "█" in line] == pytest.approx([12, 2, 25], abs=1)


def checked(benched: Benched) -> Checked:
    problems = tuple(timed.checked for timed in benched.problems)
    return Checked(SCHEMA, "backends 1", "2026-01-01", "a CPU <1>", 2, problems)


def test_pages_show_each_problem_in_numbers_and_reasons_folded() -> None:
    cannot = changed(
        WITHOUT.problems[0],
        "torch_flash",
        ended=Ended.CANNOT,
        timing=None,
        reasons=(Reason("gone", HOSTILE, "look " + HOSTILE),),
    )
    benched = run(cannot, *WITHOUT.problems[1:])
    for text in (check_page(checked(benched), Page()), bench_page(benched, Page(), "math")):
        reader = Reader(text)
        assert reader.open == []
        assert "script" not in reader.tags and "alert(1)" in reader.text
        assert "\x1b" not in text
        first = text.partition('id="problem-1"')[2].partition("</section>")[0]
        for number in ("<b>1</b><span>batch", "<b>64</b><span>queries", "<b>16</b><span>head size"):
            assert number in first
        assert "<b>float32</b><span>element type" in first
        assert first.index("<details>") < first.index("gone") < first.index("</details>")
        assert "backends sdpa check --shape 1,1,64,16" in first
        assert reader.tags.count("th") and "caption" not in reader.tags
        assert 'width="100%" height="100%"' in first  # the track of a bar


def test_who_would_compute_fits_a_narrow_terminal() -> None:
    chosen = replace(checked(SAMPLE).problems[0], chosen="flash_cpu", torch_chosen="EFFICIENT_ATTENTION")
    text = tables.check_text(replace(checked(SAMPLE), problems=(chosen,)), Page(width=50))
    lines = text.splitlines()

    assert "EFFICIENT_ATTENTION" in text
    assert max(len(line) for line in lines if "--shape" not in line) <= 50


def test_what_a_foreign_file_says_commands_no_terminal(tmp_path: Path) -> None:
    one = changed(
        problem("--shape 1,1,64,16", math=4e-5),
        "math",
        command=HOSTILE,
        gradients={HOSTILE: Errors(2e-7, 1e-6, 8e-7, 1.5)},
    )
    words = replace(one.checked, text=f"\r\n::error::{HOSTILE}", chosen=HOSTILE)
    saved = tmp_path / "foreign.json"
    saved.write_bytes(msgspec.json.encode(checked(run(replace(one, checked=words)))))

    for form in ("table", "html", "markdown"):
        done = ran("check", "--from", str(saved), "--format", form)
        assert (done.returncode, done.stderr) == (0, "")
        assert "\x1b" not in done.stdout
        assert not re.search(r"^\s*::error", done.stdout, re.MULTILINE)


def test_errors_stand_beside_their_allowance() -> None:
    one = changed(problem("--shape 1,1,64,16", math=4e-5), "math", errors=Errors(2e-7, 1e-6, 8e-7, 1.5))
    text = check_page(checked(run(one)), Page())
    assert re.search(r'width="25.0%" height="100%"></rect></svg><span>25%</span>', text)
    assert "25%" in tables.check_text(checked(run(one)), Page(width=60))


def test_the_fastest_is_first_and_named_but_not_among_unstable_times() -> None:
    one = problem("--shape 1,1,64,16", math=4e-5, torch_flash=1e-5)
    lines = tables.check_text(checked(run(one)), Page(width=60)).splitlines()
    rows = [line.split() for line in lines if "✓" in line]
    assert [row[1] for row in rows] == ["torch_flash", "math"]
    assert "fastest" in rows[0] and "4×" in rows[1]
    waited: dict[str, BenchedProblem] = {}
    for result in one.checked.results:
        assert result.timing is not None
        timing = replace(result.timing, unstable="it waited")
        waited[result.backend] = changed(one, result.backend, timing=timing)
    assert "fastest" in tables.check_text(checked(run(waited["math"])), Page(width=60))
    page = checked(run(waited["torch_flash"]))  # which took less than math: it may be the fastest, or not
    assert "fastest" not in tables.check_text(page, Page(width=60)) + check_page(page, Page())


def test_a_reason_that_holds_for_all_problems_is_printed_once() -> None:
    refused = [
        changed(bare, "math", ended=Ended.CANNOT, timing=None, reasons=(Reason("gone", "it is gone"),))
        for bare in WITHOUT.problems
    ]
    text = tables.check_text(checked(run(*refused)), Page())
    assert text.count("math: it is gone [gone]") == 1
    assert "cannot compute any of these" in text
    some = tables.check_text(checked(run(refused[0], WITHOUT.problems[2])), Page())
    assert some.index("it is gone") < some.index("--shape 1,1,256,16")


def test_a_saved_run_is_shown_again_alike(tmp_path: Path) -> None:
    bench, check, drawn = tmp_path / "bench.json", tmp_path / "check.json", tmp_path / "speed.svg"
    bench.write_bytes(msgspec.json.encode(WITHOUT))
    check.write_bytes(msgspec.json.encode(checked(WITHOUT)))
    shown = [ran("bench", "--from", str(bench), "--plot", "--plot", str(drawn)) for _ in range(2)]
    again = ran("check", "--from", str(check))

    assert shown[0].stdout == shown[1].stdout
    assert "× torch_flash" in shown[0].stdout and "█" in shown[0].stdout
    assert drawn.read_text(encoding="utf-8").strip() == picture(WITHOUT)
    assert "timed-out: no answer within 60 s" in again.stdout
    assert shown[0].returncode == again.returncode == 1  # a backend did not answer
    page = ran("check", "--from", str(check), "--format", "html").stdout
    assert page.startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bench", "--shape", "1,1,8,8"), "--from shows a saved run, --shape is for a new one"),
        (("check", "--peers"), "--from shows a saved run, --peers is for a new one"),
        (("check",), "was not saved by `backends sdpa check --format json`"),
        (
            ("bench", "--plot", "--format", "json"),
            "two outputs would be written to standard output",
        ),
    ],
)
def test_what_does_not_go_with_a_saved_run_exits_2(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "then.json"
    path.write_bytes(msgspec.json.encode(SAMPLE) if words[0] == "bench" or len(words) > 1 else b"[]")
    done = ran(*words, "--from", str(path))

    assert done.returncode == 2
    assert message in done.stderr


def test_a_plot_goes_to_the_terminal_where_the_record_goes_to_a_file(tmp_path: Path) -> None:
    saved, out = tmp_path / "then.json", tmp_path / "out.json"
    saved.write_bytes(msgspec.json.encode(SAMPLE))
    done = ran("bench", "--from", str(saved), "--format", "json", "--output", str(out), "--plot")

    assert done.stdout == plot.printed(plots(SAMPLE), Page())
    assert msgspec.json.decode(out.read_bytes())["schema"] == SAMPLE.schema


def test_a_roofline_is_drawn_only_below_a_measured_peak() -> None:
    with_peak = run(problem("--shape 1,1,64,16", math=4e-5))
    without = replace(with_peak, bandwidth_bytes_per_second=None)
    assert [bool(plot.roof) for plot in plots(with_peak)] == [False, True]
    assert [bool(plot.roof) for plot in plots(without)] == [False]
