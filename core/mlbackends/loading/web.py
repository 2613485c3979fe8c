"""Files of the web and of the disk, of which only the ranges that are asked for are read.

Each request has a time limit and is not repeated. The login in an address is sent to that address alone, not
to where it redirects to, and no login and no query of an address is shown.
"""

import base64
import hashlib
import os
import re
import ssl
from functools import cache
from http.client import HTTPException
from io import RawIOBase
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPSHandler, OpenerDirector, Request, build_opener, url2pathname

from mlbackends.base.errors import Incomplete
from mlbackends.base.quantities import to_int
from mlbackends.base.version import __version__
from mlbackends.host.files import open_named

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: The largest file that is read as a whole where a server has no ranges, and the most of one member.
WHOLE_BYTES, MOST_BYTES = 64 << 20, 160 << 20
_TAIL_BYTES, _AHEAD_BYTES, _PIECES = 96 << 10, 512 << 10, 24


def local_path(address: str) -> str:
    """Return the path of a file: address or of a path, "" of another address."""
    if address.startswith("file:"):
        return url2pathname(urlsplit(address).path)
    return "" if re.match(r"[a-z]+:/", address) else address


class RangeFile(RawIOBase):
    """A file, read in ranges. Raises Incomplete, OSError and ValueError.

    A sha256 in the fragment of its address is compared where all of the file is there.
    size: in bytes. amount: how many were read. most: how many may still be read.
    """

    def __init__(self, address: str, seconds: float = 20.0) -> None:
        self._address, self._seconds, self._at = address, seconds, 0
        self._path = local_path(address)
        self.amount, self.most = 0, MOST_BYTES
        #: The pieces that were read last, with their places.
        self._pieces: list[tuple[int, bytes]] = []
        wanted = address.partition("#sha256=")[2]
        if self._path:
            self.size = os.path.getsize(self._path)
            if wanted:
                with open_named(self._path, waits=False) as file:
                    self._check(wanted, hashlib.file_digest(file, "sha256").hexdigest())
            return
        body, place = self._answer(f"-{_TAIL_BYTES}", WHOLE_BYTES)
        self.size = to_int(place.rpartition("/")[2]) or 0
        self._keep(self.size - len(body), body, place)
        if wanted and len(body) == self.size:
            self._check(wanted, hashlib.sha256(body).hexdigest())

    def _check(self, wanted: str, found: str) -> None:
        if found != wanted:
            name = unquote(urlsplit(self._address).path.rpartition("/")[2])
            raise Incomplete(f"{name} is not the file of the lock: its sha256 is {found}, not {wanted}")

    def _failure(self, why: str) -> Incomplete:
        shown = re.sub(r"//[^/]*@", "//", re.split("[?#]", self._address)[0])
        return Incomplete(f"{shown} cannot be read: {why}", "wheels in a folder need no network")

    def _answer(self, wanted: str, most: int) -> tuple[bytes, str]:
        """Return a range of the file, or all of one that is not larger, and its place: "bytes 0-99/1000"."""
        try:
            parts = urlsplit(self._address)
            if parts.scheme not in ("http", "https"):
                raise self._failure("it is not an address of http or https")
            bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl()
            headers = {"User-Agent": f"backends/{__version__}", "Range": f"bytes={wanted}"}
            request = Request(bare, headers=headers)  # noqa: S310
            if parts.username is not None:
                login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
                request.add_unredirected_header("Authorization", f"Basic {base64.b64encode(login).decode()}")
            with _opener().open(request, timeout=self._seconds) as response:
                if (response.length or 0) > most:
                    raise self._failure(f"the server has no ranges, and sends all {response.length:,} bytes")
                body = response.read(most + 1)
                place = response.headers.get("Content-Range", "") if response.status == 206 else ""
        except HTTPError as error:
            error.close()
            raise self._failure(f"the server answers {error.code}") from None
        except (OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            why = "no answer in time" if isinstance(reason, TimeoutError) else str(reason)
            # The text of other errors has the address.
            raise self._failure(why if isinstance(reason, OSError) else type(error).__name__) from None
        self.amount += len(body)
        return body, place or f"bytes 0-{len(body) - 1}/{len(body)}"

    def _keep(self, at: int, body: bytes, place: str) -> None:
        if place != f"bytes {at}-{at + len(body) - 1}/{self.size}":
            raise self._failure("the server sent another range")
        self._pieces = [*self._pieces[-_PIECES:], (at, body)]

    def read_at(self, offset: int, length: int) -> bytes:
        """Return the bytes of a range, fewer at the file's end."""
        length = max(0, min(length, self.size - offset))
        for at, piece in reversed(self._pieces):
            if at <= offset and offset + length <= at + len(piece):
                return piece[offset - at : offset - at + length]
        more = length if self._path else min(max(length, _AHEAD_BYTES), self.size - offset)
        self.most -= more
        if self.most < 0:
            raise OSError(f"more than {MOST_BYTES >> 20} MiB of the packed file would have to be read")
        if self._path:
            with open_named(self._path, waits=False) as file:
                file.seek(offset)
                self.amount += length
                return file.read(length)
        body, place = self._answer(f"{offset}-{offset + more - 1}", more)
        self._keep(offset, body.ljust(more), place)  # a shorter answer is another range
        return body[:length]

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Read what follows into a buffer; return how much that is."""
        view = memoryview(buffer)
        data = self.read_at(self._at, len(view))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place; return it."""
        self._at = max(0, offset + (0, self._at, self.size)[whence])
        return self._at

    def seekable(self) -> bool:
        """Return that one can go to a place."""
        return True


@cache
def _opener() -> OpenerDirector:
    return build_opener(HTTPSHandler(context=ssl.create_default_context()))
