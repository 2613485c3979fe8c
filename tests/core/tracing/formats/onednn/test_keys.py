"""What is cut off a line is what the grammar reads there, or nothing is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.tracing.formats.onednn import grammar
from mlbackends.tracing.formats.onednn.keys import cut, front

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
    found = cut((line + end).encode())
    record = grammar.parse(line)
    if found is None or record is None or found[0].decode() != record.key:
        return
    assert (found[1], found[2]) == (record.duration_ns, record.start_ns)
    before = front(found[0]).decode()
    if before:
        other = grammar.parse(f"{before},9x9:9x9,1".replace("v1,", f"v1,{stamp}", 1))
        assert other is not None
        assert other.key == f"{before},9x9:9x9"


@pytest.mark.parametrize(
    ("stamp", "start"), [("", None), ("1795258901075.670898,", 1795258901075670898)]
)
def test_what_libraries_print_is_cut(stamp: str, start: int | None) -> None:
    line = f"onednn_verbose,v1,{stamp}{HEAD},1x2:2x3,0.5\n".encode()
    key = f"onednn_verbose,v1,{HEAD},1x2:2x3".encode()
    assert cut(line) == (key, 5e5, start)
    assert front(key) == key.rpartition(b",")[0]


@pytest.mark.parametrize("time", ["nan", "inf", "-1"])
def test_what_is_no_time_is_left_to_the_grammar(time: str) -> None:
    assert cut(f"onednn_verbose,v1,{HEAD},1x2:2x3,{time}\n".encode()) is None


@pytest.mark.parametrize("time", ["soon", ""])
def test_a_line_without_a_time_has_a_key_of_its_own(time: str) -> None:
    line = f"onednn_verbose,v1,{HEAD},1x2:2x3,{time}".encode()
    assert cut(line + b"\n") == (line + b"\n", None, None)
