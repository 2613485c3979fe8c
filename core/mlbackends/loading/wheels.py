"""Wheels that are not installed: their lists of files, and of each file only the bytes that are needed.

The loader needs a shared object's headers, dynamic section, symbols and relocations. They are at its start
and near its end, and what is between, code for processors and GPUs, is most of it. A member of a wheel is one
deflate stream, which can be read from its start; here it is also read from near its end: a block of it is
found by its header, and decoded twice, with two different assumptions about the 32 KB before it. Bytes that
are equal in both do not depend on that. Source: RFC 1951; zlib, contrib/puff.
"""

import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO
from zipfile import BadZipFile, ZipInfo

from mlbackends.base.errors import Incomplete
from mlbackends.libraries.elf import BLOCK_BYTES, ElfImage
from mlbackends.loading.dynamic_symbols import DynamicSymbols
from mlbackends.loading.gpu_code import has_gpu_sections
from mlbackends.loading.web import MOST_BYTES, RangeFile

#: What zipfile raises for damaged archives and those of other kinds.
_DAMAGE = (BadZipFile, NotImplementedError, UnicodeError, OverflowError, EOFError, RuntimeError, zlib.error)


class Wheel:
    """A wheel. info: the name of its metadata folder. files: the members by where installing puts them.

    A path below the import folder is relative; one in the environment's prefix begins with "/".
    Raises Incomplete for one that cannot be read, or that pip refuses.
    """

    def __init__(self, name: str, file: RangeFile) -> None:
        self.name, self.file = name, file
        self.files: dict[str, ZipInfo] = {}
        try:
            self.zip = zipfile.ZipFile(file)
        except (*_DAMAGE, ValueError, OSError) as error:
            raise Incomplete(f"{name} is not a wheel: {error}") from None
        for info in self.zip.filelist:
            path = info.filename
            if path.startswith("/") or ".." in path.split("/") or "\\" in path or "\0" in path:
                raise Incomplete(f"{name} has a file {path!r} that leads out of it: pip refuses it")
            top, _, rest = path.partition("/")
            if top.endswith(".data") and (scheme := rest.partition("/"))[2]:
                path = {"purelib": "", "platlib": "", "data": "/"}.get(scheme[0], "/bin/") + scheme[2]
            if not info.is_dir():
                self.files[path] = info
        # setuptools has others inside
        tops = [path for path in self.files if re.fullmatch(r"[^/]+\.dist-info/METADATA", path)]
        if len(tops) != 1:
            raise Incomplete(f"{name} is not a wheel: it has {len(tops)} folders with metadata")
        self.info = tops[0].partition("/")[0]

    def whole(self, info: ZipInfo, most: int) -> bytes:
        """Return a small file, checked by its checksum. Raises OSError."""
        if info.file_size > most:
            raise OSError(f"{info.filename} of {self.name} has {info.file_size:,} bytes")
        with self._reading(info), self.zip.open(info) as member:
            return member.read()

    def fill(self, info: ZipInfo, path: str, most: int) -> bool:
        """Write to a sparse file of the right size what reading an object's symbols needs.

        If it has code for GPUs and at most so many bytes as packed, all of it is written. Return whether such
        code is left out. Raises OSError, and NotALibrary as reading the whole file would.
        """
        with self._reading(info), open(path, "r+b") as file:
            member = Member(self, info, file)
            with _Filled(path, member) as image:
                image.interpreter()
                DynamicSymbols(image).first_used(image, ())
                has_code = has_gpu_sections(image)
            if is_whole := has_code and info.compress_size <= most:
                member.ensure(0, info.file_size)
        # It may have changed within a tick of the clock, which libraries/elf.py relies on.
        os.utime(path, (0, 0))
        return has_code and not is_whole

    @contextmanager
    def _reading(self, info: ZipInfo) -> Iterator[None]:
        self.file.most = MOST_BYTES
        try:
            yield
        except _DAMAGE as error:
            raise OSError(f"{info.filename} of {self.name} is damaged: {error}") from None


class Member:
    """A member of a wheel, which is written to a file as far as it is asked for.

    Raises OSError for more than the limits, and what zipfile raises for one that is damaged.
    """

    def __init__(self, wheel: Wheel, info: ZipInfo, file: IO[bytes]) -> None:
        self._packed, self._info, self._file = wheel.file, info, file
        self._stream = wheel.zip.open(info)
        self._start, self._done = wheel.file.tell(), 0
        #: Where its decoded end begins, the end as it is packed, and decoded in two ways.
        self._end = info.file_size, b"", b"", b""

    def ensure(self, offset: int, length: int) -> None:
        """Write a range, unless it is written."""
        end = min(offset + length, self._info.file_size)
        if self._info.compress_type == zipfile.ZIP_STORED:
            self._write(offset, self._packed.read_at(self._start + offset, end - offset))
            return
        while end > self._done:
            start, _, one, other = self._end
            known = slice(offset - start, end - start)
            if offset >= start and one[known] == other[known]:
                self._write(offset, one[known])
                return
            if end - self._done < self._info.file_size - offset or not self._read_end(offset):
                self._advance(end)

    def _write(self, offset: int, data: bytes) -> None:
        self._file.seek(offset)
        self._file.write(data)
        self._file.flush()

    def _advance(self, end: int) -> None:
        """Decode from the start, to a place or to the end."""
        if end > _MOST_DECODED:
            raise OSError(f"more than {_MOST_DECODED >> 20} MiB of the file would have to be unpacked")
        while self._done < end:
            data = self._stream.read(_PIECE_BYTES)
            if not data:
                raise EOFError("it has another length than its directory states")
            if data.strip(b"\0"):  # the rest stays sparse
                self._write(self._done, data)
            self._done += len(data)

    def _read_end(self, offset: int) -> bool:
        """Decode the end from before a place, or from further back than the last time.

        Return False where that would be most of the member.
        """
        info, (start, packed, one, _) = self._info, self._end
        # As well packed as what is known, or as the whole.
        share = len(packed) / len(one) if one else info.compress_size / info.file_size
        more = max(_PIECE_BYTES, len(packed) // 4, int((start - offset) * share * 1.1))
        if len(packed) + more >= info.compress_size - _PIECE_BYTES:
            return False
        packed = self._packed.read_at(self._start + info.compress_size - len(packed) - more, more) + packed
        one, other = decoded_end(packed, min(info.file_size, _MOST_DECODED))
        self._end = info.file_size - len(one), packed, one, other
        return True


class _Filled(ElfImage):
    """An ELF file that is being written: what is read of it is written first."""

    def __init__(self, path: str, member: Member) -> None:
        self.member = member
        member.ensure(0, BLOCK_BYTES)
        super().__init__(path)

    def exactly(self, offset: int, length: int) -> bytes:
        if offset + length <= self.size:
            self.member.ensure(offset, length)
            self.blocks.clear()
        return super().exactly(offset, length)


def decoded_end(data: bytes, most: int) -> tuple[bytes, bytes]:
    """Decode the end of a deflate stream from the first block that begins in it, in two ways.

    The ways differ in the 32 KB before the block. Empty if no block is found, or with more than `most` bytes.
    """
    # Bytes that cannot be packed are in blocks of another kind: so further places are searched.
    starts = range(0, len(data), max(_SEARCHED_BYTES, len(data) // 8))
    for at in (at for start in starts for at in range(start, min(start + _SEARCHED_BYTES, len(data) - 16))):
        word = int.from_bytes(data[at : at + 12], "little")
        for bit in range(8):
            bits = word >> bit
            # Not the last block, with its own codes, of which the code for the codes' lengths is complete.
            if bits & 7 != 4 or bits >> 3 & 31 > 29 or bits >> 8 & 31 > 29:
                continue
            lengths = [bits >> 17 + 3 * i & 7 for i in range((bits >> 13 & 15) + 4)]
            if sum(1 << 7 - length for length in lengths if length) != 128:
                continue
            if _inflated(data[at : at + 4096], bit, b"\0", 1 << 20)[0]:
                one, is_end = _inflated(data[at:], bit, b"\0", most)
                if is_end:
                    return one, _inflated(data[at:], bit, b"\xff", most)[0]
    return b"", b""


def _inflated(data: bytes, bit: int, before: bytes, most: int) -> tuple[bytes, bool]:
    """Decode from a bit on; return also whether the stream ends with the data."""
    shifted = (int.from_bytes(data, "little") >> bit).to_bytes(len(data), "little")
    stream = zlib.decompressobj(-15, zdict=before * 32768)
    try:
        return stream.decompress(shifted, most), stream.eof and len(stream.unused_data) <= 1
    except zlib.error:
        return b"", False


#: What is read at once; members that are hardly larger are read from their start.
_PIECE_BYTES = 1 << 20
#: Blocks of zlib's have up to 16,384 codes.
_SEARCHED_BYTES = 256 << 10
#: The most that a member may unpack to.
_MOST_DECODED = 1 << 30
