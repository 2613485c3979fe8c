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
from collections.abc import Mapping
from typing import BinaryIO, NamedTuple, Self
from urllib.parse import unquote, urldefrag, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass, url2pathname

from mlbackends.base.errors import Incomplete
from mlbackends.base.quantities import to_int
from mlbackends.base.version import __version__


class Reply(NamedTuple):
    """What a server answered. headers: by lower-case names. address: after redirects."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    address: str


class Web:
    """Requests to servers, over connections that stay open. read: how many bytes came back."""

    def __init__(self, seconds: float = 20.0) -> None:
        self.seconds, self.read = seconds, 0
        self._connections: dict[tuple[str, str], http.client.HTTPConnection] = {}
        self._files: list[BinaryIO] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()
        for file in self._files:
            file.close()

    def open(self, path: str) -> BinaryIO:
        """Open a local file, until all ends. Raises OSError."""
        self._files.append(open(path, "rb"))  # noqa: SIM115
        return self._files[-1]

    def get(self, address: str, most: int, headers: Mapping[str, str] = {}, hops: int = 3) -> Reply:
        """Return the answer to a request, whose body may have `most` bytes. Raises Incomplete."""
        parts = urlsplit(address)
        shown = shown_address(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Incomplete(f"{shown} is not an address of http or https")
        sent = {"User-Agent": f"backends/{__version__}", "Accept-Encoding": "identity", **headers}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            sent["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        try:
            connection, is_proxied = self._connection(parts.scheme, parts.netloc.rpartition("@")[2])
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            if is_proxied:
                path = f"http://{parts.netloc.rpartition('@')[2]}{path}"
            try:
                connection.request("GET", path, headers=sent)
                response = connection.getresponse()
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                # The server may have closed a connection that was open from before.
                connection.close()
                connection.request("GET", path, headers=sent)
                response = connection.getresponse()
            is_redirect = response.status in (301, 302, 303, 307, 308)
            if is_redirect:
                connection.close()
            body = b"" if is_redirect else self._body(response, most, shown)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._drop()
            why = (
                "no answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
            )
            raise Incomplete(f"{shown} cannot be read: {why}", "no network? name local files") from None
        if is_redirect:
            target = urljoin(address, response.headers.get("Location", ""))
            if not hops or (parts.scheme == "https" and not target.startswith("https:")):
                raise Incomplete(f"{shown} redirects {'to http' if hops else 'too often'}")
            return self.get(target, most, headers, hops - 1)
        return Reply(
            response.status, {name.lower(): value for name, value in response.headers.items()}, body, address
        )

    def _drop(self) -> None:
        while self._connections:
            self._connections.popitem()[1].close()

    def _connection(self, scheme: str, place: str) -> tuple[http.client.HTTPConnection, bool]:
        """Return a connection, and whether it leads to a proxy that needs the whole address."""
        proxy = urlsplit("" if proxy_bypass(place) else getproxies().get(scheme, ""))
        is_proxied = bool(proxy.hostname) and scheme == "http"
        if (scheme, place) not in self._connections:
            at = f"{proxy.hostname}:{proxy.port or 80}" if proxy.hostname else place
            if scheme == "http":
                connection = http.client.HTTPConnection(at, timeout=self.seconds)
            else:
                context = ssl.create_default_context()
                connection = http.client.HTTPSConnection(at, timeout=self.seconds, context=context)
                if proxy.hostname:
                    connection.set_tunnel(place)
            self._connections[scheme, place] = connection
        return self._connections[scheme, place], is_proxied

    def _body(self, response: http.client.HTTPResponse, most: int, shown: str) -> bytes:
        length, body, deadline = to_int(response.headers.get("Content-Length", "")), bytearray(), None
        if length is not None and length > most:
            self._drop()  # what comes is not read
            raise Incomplete(
                f"{shown} cannot be read: the server sends all {length:,} bytes at once",
                "download that file and name it, or use an index whose server has range requests",
            )
        deadline = time.monotonic() + 6 * self.seconds
        while piece := response.read1(1 << 18):
            body += piece
            self.read += len(piece)
            if len(body) > most:
                raise ValueError(f"more than {most:,} bytes came")
            if time.monotonic() > deadline:
                raise TimeoutError
        if length is not None and len(body) != length:
            raise ValueError(f"{len(body):,} bytes came instead of {length:,}")
        response.close()  # what it came over stays open
        return bytes(body)


def shown_address(address: str) -> str:
    """Return an address as it may be shown: without login and query."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.scheme else address


def local_path(address: str) -> str:
    """Return the path of a file: address or of a path, "" of another address."""
    if address.startswith("file:"):
        return url2pathname(urlsplit(address).path)
    return "" if re.match(r"[a-z]+:/", address) else address


class RangeFile:
    """A file, read in ranges, as zipfile reads it. size: in bytes. Raises Incomplete, and OSError."""

    def __init__(self, web: Web, address: str) -> None:
        self.web, self.address, self._at = web, urldefrag(address)[0], 0
        #: The pieces that were read, by their place.
        self._pieces: list[tuple[int, bytes]] = []
        path = local_path(self.address)
        self._local = web.open(path) if path else None
        if self._local:
            self.size = os.fstat(self._local.fileno()).st_size
            return
        reply = web.get(self.address, WHOLE_BYTES, {"Range": f"bytes=-{_TAIL_BYTES}"})
        self.address = reply.address
        if reply.status == 200:  # the server has no ranges, and the file is small
            self.size = len(reply.body)
        elif reply.status == 206:
            self.size, start = self._range(reply)
            if start + len(reply.body) != self.size:
                raise self._failure("the server sent another range than its end")
        else:
            raise self._failure(f"the server answers {reply.status}")
        self._pieces = [(self.size - len(reply.body), reply.body)]

    def _range(self, reply: Reply) -> tuple[int, int]:
        match = re.fullmatch(
            r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15})", reply.headers.get("content-range", "")
        )
        if not match or int(match[2]) - int(match[1]) + 1 != len(reply.body):
            raise self._failure("the server sent another range than it states")
        return int(match[3]), int(match[1])

    def _failure(self, why: str) -> Incomplete:
        return Incomplete(f"{shown_address(self.address)} cannot be read: {why}")

    def read_at(self, offset: int, length: int) -> bytes:
        """Return the bytes of a range, fewer at the file's end."""
        length = max(0, min(length, self.size - offset))
        if self._local:
            self._local.seek(offset)
            data = self._local.read(length)
            self.web.read += len(data)
            return data
        for at, piece in reversed(self._pieces):
            if at <= offset and offset + length <= at + len(piece):
                return piece[offset - at : offset - at + length]
        if length > MOST_BYTES:
            raise self._failure(f"{length:,} bytes of it would be needed at once")
        more = min(max(length, _AHEAD_BYTES), self.size - offset)
        more = min([more, *(at - offset for at, _ in self._pieces if at >= offset + length)])
        wanted = {"Range": f"bytes={offset}-{offset + more - 1}"}
        reply = self.web.get(self.address, more, wanted)
        if reply.status != 206 or self._range(reply) != (self.size, offset) or len(reply.body) != more:
            raise self._failure(f"the server answers {reply.status}, and not with the range")
        self._pieces = [*self._pieces[-_PIECES:], (offset, reply.body)]
        return reply.body[:length]

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


#: The largest file that is read as a whole where a server has no ranges.
WHOLE_BYTES = 64 << 20
#: The most that is read of a file at once.
MOST_BYTES = 160 << 20
_TAIL_BYTES, _AHEAD_BYTES, _PIECES = 96 << 10, 512 << 10, 24
