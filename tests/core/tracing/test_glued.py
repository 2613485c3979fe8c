"""A program's text right behind a call, without a line's end between them, is told from the call."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.model.trace import AnyRecord, Call, Malformed, MklCall, Primitive, Text
from mlbackends.tracing.prefixes import prefix
from mlbackends.tracing.reader import records

TRACES = Path(__file__).resolve().parents[2] / "traces"
CALLS = [
    record.raw.encode()
    for path in sorted(TRACES.glob("*.log"))
    for record in records([path.read_bytes()])
    if isinstance(record, Call) and record.duration_ns is not None
]
ONEDNN = [line for line in CALLS if not line.startswith(b"MKL")]
MKL = [line for line in CALLS if b" CNR:" in line and line[-1:].isdigit() and b"GPU" not in line]
MKL = [line for line in MKL if b"WDiv" not in line]
MATMUL = next(line for line in ONEDNN if b"primitive,exec,cpu,matmul" in line)
GEMM = next(line for line in MKL if b"MKL_VERBOSE SGEMM(" in line)
MARKERS = (b"_verbose,", b"MKL_VERBOSE ", b"Intel", b"INTEL")
TEXT = st.binary(max_size=40).filter(
    lambda text: (
        b"\n" not in text and not any(marker in text for marker in MARKERS) and not (text and prefix(text))
    )
)
NUMBER = re.compile(r"\s*$|[\d.,]|[eE](?:[-+\d]|$)|_\d")
BEHIND_ONEDNN = TEXT.filter(
    lambda text: text[-1:] != b"\r" and not NUMBER.match(text.decode("utf-8", "surrogateescape"))
)
BEHIND_MKL = TEXT.filter(lambda text: text and text[-1:] != b"\r" and text[:1] not in b"0123456789, ")


def program_text(parts: list[AnyRecord]) -> bytes:
    """Return the program's own output: all Text, byte for byte."""
    texts = (part.raw for part in parts if isinstance(part, Text))
    return b"".join(text.encode("utf-8", "surrogateescape") for text in texts)


def read(data: bytes) -> list[AnyRecord]:
    """Return the records of a program's output."""
    return list(records([data]))


@pytest.mark.parametrize("line", [MATMUL, GEMM], ids=["oneDNN", "MKL"])
@pytest.mark.parametrize(
    "behind",
    [b"some text", b"Epoch 1, loss 0.5\n", b" all done\n", b"\rstep 3\n", b"\xff\n", b"x,7\n"],
)
def test_text_behind_a_call_is_text(line: bytes, behind: bytes) -> None:
    call, text = read(line + behind)
    assert isinstance(call, Primitive | MklCall)
    assert isinstance(text, Text)
    assert str(call).encode() + text.raw.encode("utf-8", "surrogateescape") == line + behind
    assert call.duration_ns == next(iter(read(line + b"\n"))).duration_ns


@given(st.sampled_from(ONEDNN), BEHIND_ONEDNN, TEXT, st.booleans())
def test_any_text_around_a_line_of_onednn_comes_out(
    line: bytes, behind: bytes, before: bytes, ends: bool
) -> None:
    data = before + line + behind + (b"\n" if ends else b"")
    found = read(data)
    (call,) = [entry for entry in found if not isinstance(entry, Text)]
    assert str(call).encode() == line
    assert program_text(found) == before + data[len(before) + len(line) :]


@given(st.sampled_from(MKL), BEHIND_MKL, TEXT, st.booleans())
def test_any_text_around_a_line_of_mkl_comes_out(
    line: bytes, behind: bytes, before: bytes, ends: bool
) -> None:
    data = before + line + behind + (b"\n" if ends else b"")
    found = read(data)
    (call,) = [entry for entry in found if not isinstance(entry, Text)]
    assert str(call).encode() == line
    assert program_text(found) == before + data[len(before) + len(line) :]


@given(st.sampled_from(CALLS), st.data())
def test_text_inside_a_line_loses_no_byte_and_makes_no_other_call(line: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(line) - 1))
    inside = data.draw(TEXT.filter(bool))
    torn = line[:at] + inside + line[at:] + b"\n"
    found = read(torn)
    assert b"".join(entry.raw.encode("utf-8", "surrogateescape") for entry in found).replace(
        b"\n", b""
    ) == torn.replace(b"\n", b"").rstrip(b"\r")
    assert len([entry for entry in found if not isinstance(entry, Text)]) <= 1


@pytest.mark.parametrize(
    "behind",
    [b".5 text", b"e", b"e-", b"e-x", b"e400", b"E7 text", b"e5 text", b",text", b",7,text"],
)
def test_what_may_go_on_as_the_number_is_not_cut_by_guessing(behind: bytes) -> None:
    (found,) = read(MATMUL + behind + b"\n")
    assert isinstance(found, Malformed)


@pytest.mark.parametrize("behind", [b"0x", b",x", b" done", b" WDi", b" loss:0.5 now"])
def test_what_may_go_on_as_mkls_state_is_not_cut_by_guessing(behind: bytes) -> None:
    assert not [entry for entry in read(GEMM + behind + b"\n") if str(entry) == GEMM.decode()]


def test_a_digit_goes_on_as_the_number() -> None:
    call, text = read(MATMUL + b"7 text\n")
    assert (str(call), str(text)) == (MATMUL.decode() + "7", " text\n")


def test_a_line_right_behind_another_tore_it() -> None:
    torn, whole = read(MATMUL + MATMUL + b"\n")
    assert isinstance(torn, Malformed)
    assert str(whole) == MATMUL.decode()


@pytest.mark.parametrize("prefix", [b"", b"[rank0]: "])
@pytest.mark.parametrize(
    ("torn", "within"),
    [
        (GEMM.replace(b"CNR:OFF", b"CNR:"), MATMUL),
        (b"MKL_VERBOSE WARNING: Unable to ", MATMUL),
        (b"Intel MKL ERROR: Parameter ", GEMM),
        (b"onednn_verbose,v1,info,cpu,isa:", GEMM),
    ],
)
def test_no_line_swallows_another_librarys(prefix: bytes, torn: bytes, within: bytes) -> None:
    at = torn.find(b"CNR:") + 4 if b"CNR:" in torn else len(torn)
    found = list(records([prefix + torn[:at] + within + b"\n"]))
    assert [type(entry) for entry in found][:1] == [Malformed]
    assert [entry.raw.encode() for entry in found[1:]] == [within]


def test_a_line_may_begin_in_the_text_behind_another() -> None:
    first, text, second = read(MATMUL + b"Epoch " + GEMM + b"\n")
    assert (str(first), str(text), str(second)) == (MATMUL.decode(), "Epoch ", GEMM.decode())


def test_the_text_behind_a_ranks_line_is_plain() -> None:
    line = b"\x1b[36m[rank0]:\x1b[0m " + MATMUL + b"\x1b[31mred\x1b[0m\n"
    call, text = records([line])
    assert (call.source, str(call), str(text)) == ("rank0", MATMUL.decode(), "red\n")


def test_a_long_line_of_numbers_is_read_in_a_moment() -> None:
    (found,) = read(b"onednn_verbose,v1,primitive,exec,cpu" + b",1x" * 300_000 + b"\n")
    assert isinstance(found, Malformed)
