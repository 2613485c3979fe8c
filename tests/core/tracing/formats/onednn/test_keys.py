"""What is cut off a line is what the grammar reads there, or nothing is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.tracing.formats.onednn import grammar
from mlbackends.tracing.formats.onednn.keys import Shortener

HEAD = "primitive,exec,cpu,matmul,jit,undef,src:f32::blocked:ab::f0,,"
STAMPS = st.sampled_from(
    [
        "",
        "1795258901075.670898,",
        "1795258901075,670898,",
        "1795258901075,",
        "1795258901075.67,",
        "0x12,",
        "1.000000,",
        f"{10**19}.000000,",
    ]
)
TIMES = st.sampled_from(["0.5", "1e-05", "7", "0,5", "nan", "inf", "-1", "-0", "soon", "", " 1"])
PROBLEMS = st.sampled_from(["1x2:2x3", "mb1ic2oc3", "*x2", "", "1 2", "1\u00a0", "x\x7f"])


@given(STAMPS, PROBLEMS, TIMES, st.sampled_from(["\n", "\r\n", ""]))
def test_a_line_cut_short_says_what_its_record_does(
    stamp: str, problem: str, time: str, end: str
) -> None:
    line = f"onednn_verbose,v1,{stamp}{HEAD},{problem},{time}"
    cut = Shortener().timed((line + end).encode())
    record = grammar.parse(line)
    if cut is None or record is None or cut[0].decode() != record.key:
        return
    assert (cut[1], cut[2]) == (record.duration_ns, record.start_ns)
    front = Shortener().front(cut[0]).decode()
    if front:
        other = grammar.parse(f"{front},9x9:9x9,1".replace("v1,", f"v1,{stamp}", 1))
        assert other is not None
        assert other.key == f"{front},9x9:9x9"


@pytest.mark.parametrize(
    ("stamp", "start"), [("", None), ("1795258901075.670898,", 1795258901075670898)]
)
def test_what_libraries_print_is_cut(stamp: str, start: int | None) -> None:
    line = f"onednn_verbose,v1,{stamp}{HEAD},1x2:2x3,0.5\n".encode()
    key = f"onednn_verbose,v1,{HEAD},1x2:2x3".encode()
    assert Shortener().timed(line) == (key, 5e5, start)
    assert Shortener().front(key) == key.rpartition(b",")[0]


@pytest.mark.parametrize("time", ["nan", "inf", "-1", "soon", ""])
def test_what_is_no_time_is_left_to_the_grammar(time: str) -> None:
    assert Shortener().timed(f"onednn_verbose,v1,{HEAD},1x2:2x3,{time}\n".encode()) is None


def test_a_line_without_its_end_is_left_to_the_grammar() -> None:
    assert Shortener().timed(f"onednn_verbose,v1,{HEAD},1x2:2x3,0.5".encode()) is None
