"""Calls are told apart by everything but their addresses."""

from __future__ import annotations

from array import array

from hypothesis import given, settings
from hypothesis import strategies as st

from mlbackends.tracing.formats.mkl.keys import Sorter, cut

ADDRESS = st.one_of(
    st.integers(0x7F00_0000_0000, 0x7FFF_FFFF_FFFF), st.integers(1, 0xFFFF_FFFF)
).map(hex)
SIZE = st.sampled_from(["1", "7", "64", "512", "4096"])
STATE = st.sampled_from(["CNR:OFF TID:0  NThr:2", "CNR:OFF TID:1  NThr:2"])


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, str]:
    """Return a line without its time, and the same with every address the same."""
    m, n, k, lda, ldb, ldc = (draw(SIZE) for _ in range(6))
    alpha, a, b, beta, c = (draw(ADDRESS) for _ in range(5))
    state = draw(STATE)
    line = (
        f"MKL_VERBOSE SGEMM(N,N,{m},{n},{k},{alpha},{a},{lda},{b},{ldb},{beta},{c},{ldc}) # {state}"
    )
    return line, f"{m} {n} {k} {lda} {ldb} {ldc} {state}"


@settings(max_examples=40)
@given(st.lists(calls(), max_size=60))
def test_each_time_goes_to_its_own_call(made: list[tuple[str, str]]) -> None:
    takers: dict[object, object] = {}
    sorter = Sorter(takers)  # type: ignore[arg-type]
    times: dict[object, array[float]] = {}
    names: dict[object, str] = {}
    for number, (line, name) in enumerate(made):
        text = line.replace("#", f"{number}.25us").encode()
        if sorter.sort([text]):
            short = cut(text)
            assert short is not None
            key, duration, _ = short
            assert names.setdefault(key, name) == name
            times[key] = array("d", [duration])
            takers[key] = times[key].append
    expected: dict[str, list[float]] = {}
    for number, (_, name) in enumerate(made):
        expected.setdefault(name, []).append((number + 0.25) * 1e3)
    assert {names[key]: list(each) for key, each in times.items()} == expected


@settings(max_examples=30)
@given(st.lists(calls(), min_size=1, max_size=5), st.integers(2, 9))
def test_addresses_that_stop_and_begin_to_come_back_make_no_difference(
    made: list[tuple[str, str]], rounds: int
) -> None:
    takers: dict[object, object] = {}
    sorter = Sorter(takers)  # type: ignore[arg-type]
    times: dict[object, array[float]] = {}
    names: dict[str, tuple[bytes, bytes]] = {}
    for number in range(rounds):
        for line, name in made * 8:
            # In odd rounds each address is another one, as long as it was.
            fresh = line.replace("0x7f", f"0x{number:02x}") if number % 2 else line
            text = fresh.replace("#", f"{number}.25us").encode()
            if sorter.sort([text]):
                short = cut(text)
                assert short is not None
                key, duration, _ = short
                assert names.setdefault(name, key) == key
                times[key] = array("d", [duration])
                takers[key] = times[key].append
    for name, key in names.items():
        count = 8 * sum(other == name for _, other in made)
        assert list(times[key]) == [
            (number + 0.25) * 1e3 for number in range(rounds) for _ in range(count)
        ]


def test_calls_alike_in_length_and_start_are_told_apart_by_their_columns() -> None:
    forms = [b"F(0xabc,1,0xabcdef,2)", b"F(0xabcdef,1,0xabc,2)", b"F(0xabcd,1,0xabcde,22)"]
    takers: dict[object, object] = {}
    sorter = Sorter(takers)  # type: ignore[arg-type]
    times: dict[bytes, array[float]] = {}
    for number in range(30):
        form = forms[number % 3]
        line = b"MKL_VERBOSE %s %d.00us CNR:OFF" % (form.replace(b"abc", b"%03x" % number), number)
        if sorter.sort([line]):
            short = cut(line)
            assert short is not None
            key, duration, _ = short
            taken = times.setdefault(form.replace(b"22", b"2"), array("d"))
            taken.append(duration)
            takers[key] = taken.append
    assert sum(len(each) for each in times.values()) == 30
    assert len(takers) == 2


def test_what_is_no_call_is_left() -> None:
    lines = [
        b"",
        b"text",
        b"MKL_VERBOSE WARNING: no",
        b"X(1) soon",
        b"X(1) 1.00us",
        b"X(1) us CNR:OFF",
    ]
    assert Sorter({}).sort(lines) == list(range(len(lines)))
