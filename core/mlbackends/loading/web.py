"""Files of the web and of the disk, of which only the ranges that are asked for are read.

Requests have time limits and are not repeated. At most three redirects are followed, none from https to http,
and the login in an address is sent to that address alone. No login and no query of an address is shown.
"""

import base64
import http.client
import os
import re
import ssl
import time
from typing import BinaryIO, Self
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass, url2pathname

from mlbackends.base.errors import Incomplete
from mlbackends.base.quantities import to_int
from mlbackends.base.version import __version__
from mlbackends.host.files import open_named


class Web:
    """Requests to servers, over connections that stay open. read: how many bytes came back."""

    def __init__(self, seconds: float = 20.0) -> None:
        self.seconds, self.read = seconds, 0
        self.files: list[BinaryIO] = []
        self._connections: dict[tuple[str, str], http.client.HTTPConnection] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()
        for file in self.files:
            file.close()

    def get(self, address: str, wanted: str, most: int, hops: int = 3) -> tuple[str, bytes, str]:
        """Return a range of a file, or all of a file that has at most so many bytes.

        wanted: "0-99". Return also where the server states that it is, "" for all of the file, and the
        address after redirects. Raises Incomplete.
        """
        shown = shown_address(address)
        try:
            parts = urlsplit(address)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("it is not an address of http or https")  # noqa: TRY301
            headers = {"User-Agent": f"backends/{__version__}", "Range": f"bytes={wanted}"}
            if parts.username is not None:
                login = f"{unquote(parts.username)}:{unquote(parts.password or '')}".encode()
                headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            response = self._response(parts.scheme, parts.netloc.rpartition("@")[2], path, headers)
            if response.status in (301, 302, 303, 307, 308) and hops:
                target = urljoin(address, response.headers.get("Location", ""))
                if parts.scheme == "http" or target.startswith("https:"):
                    self._drop()
                    return self.get(target, wanted, most, hops - 1)
            if response.status not in (200, 206):
                raise ValueError(f"the server answers {response.status}")  # noqa: TRY301
            size = to_int(response.headers.get("Content-Length", "")) or 0
            if size > most:
                raise ValueError(f"the server has no ranges, and sends all {size:,} bytes")  # noqa: TRY301
            deadline = time.monotonic() + 3 * self.seconds + most / 200_000
            body = bytearray()
            while len(body) <= most and (piece := response.read1(1 << 18)):
                body += piece
                self.read += len(piece)
                if time.monotonic() > deadline:
                    raise TimeoutError
            if len(body) > most or (size and len(body) != size):
                raise ValueError(f"{len(body):,} bytes came instead of {size or most:,}")  # noqa: TRY301
            response.close()  # the connection stays open
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._drop()
            why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            why = type(error).__name__ if isinstance(error, http.client.InvalidURL) or not why else why
            raise Incomplete(f"{shown} cannot be read: {why}", "wheels in a folder need no network") from None
        place = response.headers.get("Content-Range", "?") if response.status == 206 else ""
        return place, bytes(body), address

    def _drop(self) -> None:
        while self._connections:
            self._connections.popitem()[1].close()

    def _response(
        self, scheme: str, place: str, path: str, headers: dict[str, str]
    ) -> http.client.HTTPResponse:
        proxy = urlsplit("" if proxy_bypass(place) else getproxies().get(scheme, ""))
        at = f"{proxy.hostname}:{proxy.port or 80}" if proxy.hostname else place
        path = f"http://{place}{path}" if proxy.hostname and scheme == "http" else path
        is_new = (scheme, place) not in self._connections
        if is_new and scheme == "http":
            self._connections[scheme, place] = http.client.HTTPConnection(at, timeout=self.seconds)
        elif is_new:
            tls = ssl.create_default_context()
            connection = http.client.HTTPSConnection(at, timeout=self.seconds, context=tls)
            if proxy.hostname:
                connection.set_tunnel(place)
            self._connections[scheme, place] = connection
        try:
            self._connections[scheme, place].request("GET", path, headers=headers)
            return self._connections[scheme, place].getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
            if is_new:
                raise
            self._drop()  # the server closed what was open from before
            return self._response(scheme, place, path, headers)


def shown_address(address: str) -> str:
    """Return an address as it may be shown: without login, query and fragment."""
    return re.sub(r"//[^/]*@", "//", re.split("[?#]", address)[0])


def local_path(address: str) -> str:
    """Return the path of a file: address or of a path, "" of another address."""
    if address.startswith("file:"):
        return url2pathname(urlsplit(address).path)
    return "" if re.match(r"[a-z]+:/", address) else address


class RangeFile:
    """A file, read in ranges, for zipfile. size: in bytes. Raises Incomplete, OSError and ValueError."""

    def __init__(self, web: Web, address: str) -> None:
        self.web, self.address, self._at = web, urldefrag(address)[0], 0
        #: The pieces that were read, with their places.
        self._pieces: list[tuple[int, bytes]] = []
        if path := local_path(self.address):
            web.files.append(open_named(path, waits=False))
            self._local: BinaryIO | None = web.files[-1]
            self.size = os.fstat(self._local.fileno()).st_size
            return
        self._local = None
        place, body, self.address = web.get(self.address, f"-{_TAIL_BYTES}", WHOLE_BYTES)
        self.size = self._total(place, body) if place else len(body)
        self._pieces = [(self.size - len(body), body)]
        if place and not place.startswith(f"bytes {self.size - len(body)}-"):
            raise self._failure()

    def _total(self, place: str, body: bytes) -> int:
        match = re.fullmatch(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})", place)
        if not match or int(match[2]) - int(match[1]) + 1 != len(body):
            raise self._failure()
        return int(match[3])

    def _failure(self) -> Incomplete:
        return Incomplete(f"{shown_address(self.address)} cannot be read: the server sent another range")

    def read_at(self, offset: int, length: int) -> bytes:
        """Return the bytes of a range, fewer at the file's end. Raises Incomplete."""
        length = max(0, min(length, self.size - offset))
        if self._local:
            self._local.seek(offset)
            data = self._local.read(length)
            self.web.read += len(data)
            return data
        for at, piece in reversed(self._pieces):
            if at <= offset and offset + length <= at + len(piece):
                return piece[offset - at : offset - at + length]
        more = min(max(length, _AHEAD_BYTES), self.size - offset)
        more = min([more, *(at - offset for at, _ in self._pieces if at >= offset + length)])
        if more > MOST_BYTES:
            raise Incomplete(
                f"{shown_address(self.address)} is not read: {more:,} bytes of it would be needed"
            )
        place, body, _ = self.web.get(self.address, f"{offset}-{offset + more - 1}", more)
        is_there = place.startswith(f"bytes {offset}-") and len(body) == more
        if not is_there or self._total(place, body) != self.size:
            raise self._failure()
        self._pieces = [*self._pieces[-_PIECES:], (offset, body)]
        return body[:length]

    def read(self, length: int = -1) -> bytes:
        """Return the next bytes, all that follow without a length."""
        data = self.read_at(self._at, self.size if length < 0 else length)
        self._at += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place; return it."""
        self._at = max(0, offset + (0, self._at, self.size)[whence])
        return self._at

    def tell(self) -> int:
        """Return the place of the next byte."""
        return self._at

    def seekable(self) -> bool:
        """Return that one can go to a place."""
        return True


#: The largest file that is read as a whole where a server has no ranges, and the most that is read at once.
WHOLE_BYTES, MOST_BYTES = 64 << 20, 160 << 20
_TAIL_BYTES, _AHEAD_BYTES, _PIECES = 96 << 10, 512 << 10, 24
