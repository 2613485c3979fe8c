"""Frames of zstd are told to be whole or cut off, wherever the data is cut into pieces."""

from __future__ import annotations

import pytest

from mlbackends.tracing.zstd_frames import Frames

MAGIC = b"\x28\xb5\x2f\xfd"
RAW = MAGIC + b"\x20\x05" + b"\x29\0\0" + b"hello"
"""One segment, its size in one byte, one raw block of five bytes, the last."""
RUN = MAGIC + b"\x04\x50" + b"\x22\0\0" + b"a" + b"\x01\0\0" + b"\1\2\3\4"
"""A window, a run of four bytes, an empty last block, a checksum."""
SKIPPED = b"\x53\x2a\x4d\x18" + b"\x03\0\0\0" + b"abc"
NOTHING = b"\x50\x2a\x4d\x18" + b"\0\0\0\0"
ALL = RAW + RUN + SKIPPED + NOTHING + RAW


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(ALL)])
def test_only_at_the_end_of_a_frame_is_it_whole(size: int) -> None:
    ends = {0}
    for frame in (RAW, RUN, SKIPPED, NOTHING, RAW):
        ends.add(max(ends) + len(frame))
    frames = Frames()
    for at in range(0, len(ALL), size):
        assert frames.is_whole == (at in ends)
        frames.add(ALL[at : at + size])
    assert frames.is_whole
