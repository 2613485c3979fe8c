"""The page of a trace: whole, harmless whatever a trace holds, with plots that tell what was counted."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from running import Reader

from mlbackends.base.registry import load
from mlbackends.model.trace_views import Roof
from mlbackends.tracing.machine import UNKNOWN, Machine
from mlbackends.tracing.reader import read
from mlbackends.tracing.reader import records as records_of
from mlbackends.tracing.viewing import view
from mlbackends.tracing.walk import Walk
from mlbackends_cli.trace.listings import listing
from mlbackends_cli.trace.page import Contents, trace_page

TRACES = Path(__file__).resolve().parents[1] / "traces"
LOGS = sorted(path.name for path in TRACES.glob("*.log"))
SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = (
    '</title></style></svg><script>alert(1)</script>"><img src=x onerror=alert(1)>&\x00\x1b[31m\u202e\ud800'
)
LINE = (
    "onednn_verbose,v1,primitive,exec,cpu,{},{},undef,src:f32::blocked:ab::f0"
    " wei:f32::blocked:ab::f0 dst:f32::blocked:ab::f0,,,{},{}"
)


def call(
    primitive: str,
    milliseconds: float,
    kernel: str = "jit:avx2",
    shape: str = "64x64:64x64",
    **more: Any,
) -> Any:
    record = load("mlbackends.tracing.formats", "onednn").parse(
        LINE.format(primitive, kernel, shape, milliseconds)
    )
    return structs.replace(record, **more)


def rendered(records: Any, title: str = "a trace", *, machine: Machine = UNKNOWN, **more: Any) -> str:
    contents = Contents(title, machine, **more)
    for record in records:
        contents.add(record)
    return trace_page(contents)


@pytest.mark.parametrize("times", [1, 7])
def test_a_page_of_a_walk_is_that_of_the_records(times: int) -> None:
    data = b"".join(path.read_bytes() for path in sorted(TRACES.glob("*.log"))) * times
    contents = Contents("a trace")
    walk = Walk(contents.collectors)
    walk.add([data])
    contents.text_lines = walk.texts
    assert trace_page(contents) == rendered(records_of([data]))


def pictures(text: str) -> dict[str, ET.Element]:
    found = [
        ET.fromstring("<svg " + part.partition("</svg>")[0] + "</svg>")
        for part in text.split("<svg ")[1:]
        if not part.startswith('class="bar"')
    ]
    return {node.attrib["class"]: node for node in found}


def words(picture: ET.Element) -> list[str]:
    found = []
    for text in picture.iter(f"{SVG}text"):
        title = text.find(f"{SVG}title")
        found.append((title.text if title is not None else text.text) or "")
    return found


def titles(picture: ET.Element, kind: str) -> list[str]:
    """Return what shapes of some kind say to who points at them."""
    found = []
    for shape in picture.iter():
        title = shape.find(f"{SVG}title")
        if kind in shape.attrib.get("class", "").split() and title is not None:
            found.append(title.text or "")
    return found


@pytest.mark.parametrize("log", LOGS)
def test_every_log_makes_a_whole_page(log: str) -> None:
    text = rendered(read(str(TRACES / log)), log, tool="backends 1", created="today")
    reader = Reader(text)
    assert reader.open == []
    assert len(reader.ids) == len(set(reader.ids))
    assert log in reader.text
    assert "made bybackends 1" in reader.text


def test_text_of_a_trace_stays_text() -> None:
    shape = HOSTILE.replace(",", "")
    records = [
        structs.replace(
            call("matmul", 1),
            signature=structs.replace(
                call("matmul", 1).signature,
                key=HOSTILE,
                primitive=HOSTILE,
                implementation=f"ref:{HOSTILE}",
                problem=shape,
            ),
            source=HOSTILE,
            raw=HOSTILE,
        )
    ]
    records += list(records_of([b"onednn_verbose,v1,prim\xff<script>\n"]))
    text = rendered(records, HOSTILE)
    reader = Reader(text)
    assert reader.open == []
    assert not {"script", "img"} & set(reader.tags)
    assert "alert(1)" in reader.text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e\ud800]", text)
    for picture in pictures(text).values():
        assert picture.tag == f"{SVG}svg"


def bars(text: str) -> list[tuple[str, str, str]]:
    """Return the class, the width and the number of each bar of shares."""
    table = text.partition('id="where"')[2].partition("</section>")[0]
    found = re.findall(r'<rect class="(series \w+)" width="([^"]+)".*?<span>([^<]+)</span>', table)
    return [(kind, width, number) for kind, width, number in found]


def test_the_bars_are_shares_of_all_time_the_longest_first() -> None:
    text = rendered([call("matmul", 3), call("softmax", 1)])
    assert bars(text) == [("series s0", "75.0%", "75%"), ("series s1", "25.0%", "25%")]
    cells = re.findall(r"<t[dh][^>]*>([^<]+)</td>", text.partition('id="where"')[2])
    assert cells[:5] == ["matmul", "jit:avx2", "f32", "3 ms", "1"]


def test_more_bars_than_fit_are_counted() -> None:
    text = rendered([call(f"operation_{number:02}", 1) for number in range(20)])
    assert len(bars(text)) == 15
    assert "and 5 more, 5 ms, 25% of the time" in text


def test_a_point_tells_what_was_reached() -> None:
    text = rendered([call("matmul", 1, shape="512x512:512x512"), call("matmul", 0.01)])
    said = titles(pictures(text)["points-wide"], "dot")
    assert len(said) == 2
    assert said[0].startswith("matmul 512x512:512x512 f32 jit:avx2: 268 GFLOP/s, 3.15 GB/s, 85.3 operations")
    roof = titles(pictures(text)["points-wide"], "roof")
    assert roof == ["the best seen here: 4.92 GB/s, 268 GFLOP/s"]


def test_findings_refusals_and_what_is_in_no_total_have_their_places() -> None:
    text = rendered(read(str(TRACES / "torch-2.13-onednn-all-timestamp.log")))
    reader = Reader(text)
    assert "[reorder-share]" in reader.text
    assert "unsupported format tag" in reader.text
    assert "primitive creations" in reader.text
    ids = [value for name, value in reader.attributes if name == "id"]
    assert {"look-at", "where", "work", "calls", "refused", "uncounted"} <= set(ids)


def test_a_trace_of_nothing_is_a_page() -> None:
    reader = Reader(rendered([]))
    assert reader.open == []
    assert "0calls" in reader.text


@pytest.mark.parametrize("times", [(0, 0), (1e-300, 1e300), (0, 5)])
def test_extreme_times_make_a_page(times: tuple[float, float]) -> None:
    records = [call("matmul", 1, duration_ns=time_) for time_ in times]
    assert Reader(rendered(records)).open == []


def test_the_roof_is_that_of_this_machine_where_it_was_measured() -> None:
    roof = Roof(gflops=1234.0, gigabytes_per_second=56.0, threads=2, by="multiply-adds")
    records = [call("matmul", 1)]
    seen, measured = (
        pictures(rendered(records, machine=machine))["points-wide"]
        for machine in (UNKNOWN, Machine(roof=roof))
    )
    assert titles(seen, "roof")[0].startswith("the best seen here: ")
    assert titles(measured, "roof") == ["this machine: 56 GB/s, 1234 GFLOP/s"]
    assert any("this machine reached just now: multiply-adds" in text for text in words(measured))
    (note,) = listing(view("roofline", records, roof=roof)).notes
    assert note == "this machine just reached 1234 GFLOP/s, 56 GB/s (multiply-adds)"
