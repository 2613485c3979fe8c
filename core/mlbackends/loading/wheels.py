"""Wheels that are not installed: their lists of files, and of each file only the bytes that are needed.

The loader needs a shared object's headers, dynamic section, symbols and relocations. They are at its start
and near its end, and what is between, code for processors and GPUs, is most of it. A member of a wheel is one
deflate stream, which can be read from its start; here it is also read from near its end: a block of it is
found by its header, and decoded twice, with two different assumptions about the 32 KB before it. Bytes that
are equal in both do not depend on that. Source: RFC 1951; zlib, contrib/puff.
"""

import zipfile
import zlib
from typing import IO
from zipfile import BadZipFile, ZipInfo

from mlbackends.base.errors import Incomplete
from mlbackends.libraries.elf import BLOCK_BYTES, ElfImage
from mlbackends.loading.dynamic_symbols import DynamicSymbols
from mlbackends.loading.gpu_code import has_gpu_sections
from mlbackends.loading.web import RangeFile


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
        except (BadZipFile, NotImplementedError, ValueError, OverflowError, EOFError, OSError) as error:
            raise Incomplete(f"{name} is not a wheel: {error}") from None
        if len(self.zip.filelist) > _MOST_FILES:
            raise Incomplete(f"{name} is not read: it has {len(self.zip.filelist):,} files")
        for info in self.zip.filelist:
            path = info.filename
            if path.startswith("/") or ".." in path.split("/") or "\\" in path or "\0" in path:
                raise Incomplete(f"{name} has a file {path!r} that leads out of it: pip refuses it")
            top, _, rest = path.partition("/")
            if top.endswith(".data") and (scheme := rest.partition("/"))[2]:
                path = {"purelib": "", "platlib": "", "data": "/"}.get(scheme[0], "/bin/") + scheme[2]
            if not info.is_dir():
                self.files[path] = info
        parts = [path.split("/") for path in self.files if path.endswith(".dist-info/METADATA")]
        tops = {part[0] for part in parts if len(part) == 2}  # setuptools has others inside
        if len(tops) != 1:
            raise Incomplete(f"{name} is not a wheel: it has {len(tops)} folders with metadata")
        self.info = tops.pop()

    def whole(self, info: ZipInfo, most: int) -> bytes:
        """Return a small file, checked by its checksum. Raises OSError."""
        if info.file_size > most:
            raise OSError(f"{info.filename} of {self.name} has {info.file_size:,} bytes")
        try:
            with self.zip.open(info) as member:
                return member.read(most)
        except (BadZipFile, NotImplementedError, ValueError, RuntimeError, EOFError, zlib.error) as error:
            raise OSError(f"{info.filename} of {self.name} is damaged: {error}") from None

    def fill(self, info: ZipInfo, path: str) -> None:
        """Write to a sparse file of the right size what reading an object's symbols needs.

        Raises OSError, and NotALibrary as reading the whole file would.
        """
        with open(path, "r+b") as file:
            member = Member(self, info, file)
            with _Filled(path, member) as image:
                symbols = DynamicSymbols(image)
                image.interpreter()
                for name in (14, 15, 29):
                    image.string(image.tags[name]) if name in image.tags else None
                for position in image.needed:
                    image.string(position)
                symbols.first_used(image, ())

    def fill_code(self, info: ZipInfo, path: str, most: int) -> bool:
        """Write to such a file what reading its code for GPUs needs: all of it, if it has such sections.

        most: packed bytes that are read. Return whether that is all. Raises as `fill` does.
        """
        with open(path, "r+b") as file:
            member = Member(self, info, file)
            with _Filled(path, member) as image:
                if not has_gpu_sections(image):
                    return True
            if info.compress_size <= most:
                member.ensure(0, info.file_size)
        return info.compress_size <= most


class Member:
    """A member of a wheel, which is written to a file as far as it is asked for."""

    def __init__(self, wheel: Wheel, info: ZipInfo, file: IO[bytes]) -> None:
        self._wheel, self._info, self._file = wheel, info, file
        header = wheel.file.read_at(info.header_offset, 30)
        lengths = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
        if header[:4] != b"PK\3\4" or info.compress_type not in (0, 8) or info.flag_bits & 1:
            raise OSError(f"{info.filename} of {wheel.name} is not stored or deflated as is stated")
        self._start = info.header_offset + 30 + sum(lengths)
        self._stream, self._fed, self._done = zlib.decompressobj(-15), 0, 0
        #: Where its decoded end begins, the end as it is packed, and decoded in two ways.
        self._end = info.file_size, b"", b"", b""
        self._is_near_start = info.compress_size <= 2 * _PIECE_BYTES

    def ensure(self, offset: int, length: int) -> None:
        """Write a range, unless it is written. Raises OSError."""
        end = min(offset + length, self._info.file_size)
        if self._info.compress_type == 0:
            self._write(offset, self._wheel.file.read_at(self._start + offset, end - offset))
            return
        while end > self._done:
            ahead, behind = end - self._done, self._info.file_size - offset
            if self._is_near_start or ahead < behind:
                self._advance(end)
                return
            start, _, one, other = self._end
            known = slice(offset - start, end - start)
            if offset >= start and one[known] == other[known]:
                self._write(offset, one[known])
                return
            self._read_end(offset)

    def _write(self, offset: int, data: bytes) -> None:
        self._file.seek(offset)
        self._file.write(data)
        self._file.flush()

    def _advance(self, end: int) -> None:
        """Decode from the start, to a place or to the end."""
        if end > _MOST_DECODED:
            raise OSError(f"more than {_MOST_DECODED >> 20} MiB of the file would have to be unpacked")
        while self._done < end:
            rest = self._stream.unconsumed_tail
            if not rest:
                self._within_limit(self._fed)
                rest = self._wheel.file.read_at(
                    self._start + self._fed, min(_PIECE_BYTES, self._info.compress_size - self._fed)
                )
                self._fed += len(rest)
            try:
                data = self._stream.decompress(rest, _PIECE_BYTES)
            except zlib.error as error:
                raise self._damaged(str(error)) from None
            if (not data and (not rest or self._stream.eof)) or self._done + len(data) > self._info.file_size:
                raise self._damaged("it has another length than its directory states")
            if data.strip(b"\0"):
                self._write(self._done, data)
            self._done += len(data)

    def _read_end(self, offset: int) -> None:
        """Decode the end from before a place, or from further back than the last time."""
        info, (start, packed, one, _) = self._info, self._end
        more = len(packed)
        if lacking := max(0, start - offset):  # as well packed as what is known, or as the whole
            share = len(packed) / len(one) if one else info.compress_size / info.file_size
            more = max(len(packed) // 4, int(lacking * share * 1.1))
        more = max(_PIECE_BYTES, more)
        if len(packed) + more >= info.compress_size - self._fed:
            self._is_near_start = True
            return
        self._within_limit(len(packed) + more)
        at = self._start + info.compress_size - len(packed) - more
        packed = self._wheel.file.read_at(at, more) + packed
        one, other = decoded_end(packed, min(info.file_size, _MOST_DECODED))
        self._end = info.file_size - len(one), packed, one, other

    def _within_limit(self, amount: int) -> None:
        if amount >= _MOST_OF_ONE:
            raise OSError(f"more than {_MOST_OF_ONE >> 20} MiB of the packed file would have to be read")

    def _damaged(self, why: str) -> OSError:
        return OSError(f"its member of {self._wheel.name} is damaged: {why}")


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
    places = (at for start in starts for at in range(start, min(start + _SEARCHED_BYTES, len(data) - 16)))
    for at in places:
        word = int.from_bytes(data[at : at + 12], "little")
        for bit in range(8):
            bits = word >> bit
            # Not the last block, with its own codes, of which the code for the codes' lengths is complete.
            if bits & 7 != 4 or bits >> 3 & 31 > 29 or bits >> 8 & 31 > 29:
                continue
            lengths = [bits >> 17 + 3 * i & 7 for i in range((bits >> 13 & 15) + 4)]
            if sum(1 << 7 - length for length in lengths if length) != 128:
                continue
            if _inflated(data[at : at + 4096], bit, b"\0", 1 << 20) is None:
                continue
            one = _inflated(data[at:], bit, b"\0", most, to_end=True)
            other = one is not None and _inflated(data[at:], bit, b"\xff", most, to_end=True)
            if one is not None and other:
                return one, other
    return b"", b""


def _inflated(data: bytes, bit: int, before: bytes, most: int, *, to_end: bool = False) -> bytes | None:
    shifted = (int.from_bytes(data, "little") >> bit).to_bytes(len(data), "little")
    stream = zlib.decompressobj(-15, zdict=before * 32768)
    try:
        inflated = stream.decompress(shifted, most)
    except zlib.error:
        return None
    return inflated if not to_end or (stream.eof and len(stream.unused_data) <= 1) else None


#: What is read at once; members that are hardly larger are read from their start.
_PIECE_BYTES = 1 << 20
#: Blocks of zlib's have up to 16,384 codes.
_SEARCHED_BYTES = 256 << 10
#: The most compressed bytes that are read of one member, and the most that it may unpack to.
_MOST_OF_ONE, _MOST_DECODED = 160 << 20, 1 << 30
_MOST_FILES = 1 << 18
