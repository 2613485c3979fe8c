"""Compressed logs are told by their first bytes, and damaged ones give what is there."""

from __future__ import annotations

import bz2
import gzip
import importlib
import lzma
import random
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.base.errors import BadInput
from mlbackends.tracing.compressed import Damaged, compression, decompressed

if TYPE_CHECKING:
    from collections.abc import Callable

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "xz": lzma.compress,
    "bzip2": bz2.compress,
}
TEXT = b"onednn_verbose,v1,info,cpu,runtime:OpenMP,nthr:2\n" * 400


def packer(kind: str) -> Callable[[bytes], bytes]:
    """Return what packs by a kind; skip the test where nothing does."""
    if kind in PACKERS:
        return PACKERS[kind]
    try:
        name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
        return importlib.import_module(name).compress  # type: ignore[no-any-return]
    except ImportError:
        pytest.skip("neither Python 3.14 nor the package backports.zstd")


def unpacked(kind: str, data: bytes, size: int) -> tuple[bytes, str]:
    """Return what comes out of data in pieces, and why it ended too early, if it did."""
    found = bytearray()
    try:
        for piece in decompressed(kind, (data[n : n + size] for n in range(0, len(data), size))):
            found += piece
    except Damaged as error:
        return bytes(found), str(error)
    return bytes(found), ""


@pytest.mark.parametrize("kind", PACKERS)
def test_the_kind_is_told_by_the_first_bytes(kind: str) -> None:
    assert compression(PACKERS[kind](TEXT)[:6]) == kind
    assert compression(b"onedn") == ""


@given(st.sampled_from(sorted(PACKERS)), st.lists(st.integers(0, 10_000)), st.integers(1, 3))
def test_cut_anywhere_and_put_one_behind_the_other(kind: str, places: list[int], copies: int) -> None:
    data = PACKERS[kind](TEXT) * copies
    ends = sorted({place % len(data) for place in places} | {0, len(data)})
    pieces = [data[start:end] for start, end in pairwise(ends)]
    assert b"".join(decompressed(kind, pieces)) == TEXT * copies


@pytest.mark.parametrize("kind", PACKERS)
def test_one_that_was_cut_off_gives_what_is_there_and_says_so(kind: str) -> None:
    data = PACKERS[kind](TEXT)
    found: list[bytes] = []
    with pytest.raises(Damaged, match="ends too early"):
        found.extend(decompressed(kind, [data[:-4]]))
    assert TEXT.startswith(b"".join(found))


@pytest.mark.parametrize("kind", PACKERS)
def test_one_with_a_wrong_byte_says_so(kind: str) -> None:
    data = bytearray(PACKERS[kind](TEXT))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(Damaged, match=f"the {kind} data"):
        list(decompressed(kind, [bytes(data)]))


@pytest.mark.parametrize("kind", [*PACKERS, "zstd"])
@pytest.mark.parametrize("size", [1 << 17, 500])
@pytest.mark.parametrize("part", [0.3, 0.7, 0.95])
def test_what_stands_before_damage_comes_out(kind: str, size: int, part: float) -> None:
    dice = random.Random(4)
    text = b"".join(b"onednn_verbose,v1,%d\n" % dice.getrandbits(60) for _ in range(20_000))
    packed = bz2.compress(text, 1) if kind == "bzip2" else packer(kind)(text)
    at = int(len(packed) * part)
    damaged = packed[:at] + b"garbage" * 4 + packed[at + 28 :]
    whole, _ = unpacked(kind, packed[:at], size)
    found, reason = unpacked(kind, damaged, size)
    assert text.startswith(whole)
    assert len(whole) > len(text) * (part - 0.25)
    assert found.startswith(whole[: -(1 << 17)])
    assert f"the {kind} data is damaged" in reason


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_what_no_packer_wrote_behind_a_log_costs_nothing_of_it(kind: str) -> None:
    found, reason = unpacked(kind, packer(kind)(TEXT) + b"garbage" * 9, 1 << 17)
    assert found == TEXT
    assert f"the {kind} data is damaged" in reason


@pytest.mark.parametrize("kind", PACKERS)
def test_pieces_stay_small_whatever_was_packed(kind: str) -> None:
    packed = PACKERS[kind](bytes(20 << 20))
    assert max(map(len, decompressed(kind, [packed]))) <= 1 << 20


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="Python 3.14 reads zstd itself")
def test_zstd_says_what_it_needs_where_nothing_can_read_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    with pytest.raises(BadInput, match="zstd") as caught:
        list(decompressed("zstd", [b"\x28\xb5\x2f\xfd"]))
    assert "backports.zstd" in caught.value.hint


@pytest.mark.parametrize(("kind", "module"), [("xz", "lzma"), ("bzip2", "bz2")])
def test_a_python_that_was_compiled_without_a_kind_says_so(
    kind: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(BadInput, match=f"compressed by {kind}, which this Python was built"):
        list(decompressed(kind, [b"x"]))


def test_zstd_where_something_can_read_it() -> None:
    packed = packer("zstd")(TEXT)
    assert compression(packed) == "zstd"
    assert b"".join(decompressed("zstd", [packed[:9], packed[9:]])) == TEXT


@pytest.mark.parametrize("cut", [5, 9, 30, -1])
def test_zstd_that_was_cut_off_says_so(cut: int) -> None:
    packed = packer("zstd")(TEXT)
    with pytest.raises(Damaged, match="the zstd data ends too early"):
        list(decompressed("zstd", [packed[:cut]]))
    again = packed + packed
    assert b"".join(decompressed("zstd", [again[:7], again[7:]])) == TEXT * 2
