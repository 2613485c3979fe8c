"""Lowered modules in files.

A file is one line of text and a pickle:

    mlbackends-lowered 1 backend=NAME bytes=LENGTH sha256=DIGEST

The pickle holds the processed artefact, the compile spec and the signatures; the backend compiles again
when it is loaded. **Loading a pickle runs code that its author chose**: load files that you trust, and no
others. The digest finds torn and damaged files, not hostile ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
from typing import BinaryIO

from mlbackends.jit.compiled import SAVED, Compiled
from mlbackends.jit.errors import JitError, NotLoadable
from mlbackends.jit.lowered import LoweredModule, LoweredWrapper
from mlbackends.jit.registration import check_registered

_MAGIC = b"mlbackends-lowered"
_VERSION = b"1"
_HEADER_LIMIT = 4096


def save(module: LoweredWrapper, file: str | os.PathLike[str] | BinaryIO) -> None:
    """Write a lowered module to a path or a binary file.

    A path holds the whole file or what was there before, never a part. Works while the backend is not
    available. Raises TypeError for what is not lowered, RuntimeError where the processed artefact
    or the spec cannot be pickled, OSError where the file cannot be written.
    """
    if not isinstance(module, LoweredWrapper):
        raise TypeError(f"what to_backend returned can be saved, not {type(module).__name__}")
    compiled = module.__loweredModule__.__compiled__
    try:
        body = pickle.dumps(compiled.__getstate__(), protocol=5)
    except Exception as error:
        raise JitError(
            f"what backend {compiled.backend_name} made of {compiled.original_name} cannot be "
            f"pickled: {error}"
        ) from error
    digest = hashlib.sha256(body).hexdigest()
    header = f" backend={compiled.backend_name} bytes={len(body)} sha256={digest}\n"
    content = _MAGIC + b" " + _VERSION + header.encode() + body
    if hasattr(file, "write"):
        file.write(content)
    else:
        _write_whole(os.path.realpath(os.fspath(file)), content)


def load(file: str | os.PathLike[str] | BinaryIO) -> LoweredWrapper:
    """Read a lowered module from a path or a binary file, and let its backend compile it.

    This unpickles: a file from somebody else can run any code. Raises NotLoadable (a RuntimeError
    and ValueError) for a file that is not ours, torn, damaged, of another version or in need of a
    class that is not here; RuntimeError where the backend is not registered or "Backend is not
    available."; OSError where the file cannot be read.
    """
    if hasattr(file, "read"):
        name = str(getattr(file, "name", "the file"))
        content = file.read()
    else:
        name = os.fspath(file)
        with open(name, "rb") as opened:
            content = opened.read()
    backend, body = _body(content, name)
    check_registered(backend)  # before any code of the file runs
    try:
        state = pickle.loads(body)  # noqa: S301  documented above
    except (ImportError, AttributeError, pickle.UnpicklingError) as error:
        raise NotLoadable(f"{name} cannot be unpickled here: {error}") from error
    ours = isinstance(state, dict) and set(state) == set(SAVED)
    if not ours or state["backend_name"] != backend:
        raise NotLoadable(f"{name} holds no lowered module of backend {backend}")
    compiled = Compiled.__new__(Compiled)
    compiled.__setstate__(state)
    return LoweredWrapper(LoweredModule(compiled))


def _body(content: bytes, name: str) -> tuple[str, bytes]:
    """Return the backend's name and the pickle of a file's content, after checking the line."""
    line, _, body = content[:_HEADER_LIMIT].partition(b"\n")
    words = line.split(b" ")
    if words[0] != _MAGIC:
        raise NotLoadable(f"{name} is no lowered module: it does not begin with {_MAGIC.decode()}")
    if len(words) > 1 and words[1].isdigit() and words[1] != _VERSION:
        raise NotLoadable(
            f"{name} is of version {words[1].decode()}; this mlbackends reads version "
            f"{_VERSION.decode()}"
        )
    fields = dict(word.decode(errors="replace").partition("=")[::2] for word in words[2:])
    if set(fields) != {"backend", "bytes", "sha256"} or not fields["bytes"].isdigit():
        raise NotLoadable(f"{name} is torn or damaged: its first line is not complete")
    body = content[len(line) + 1 :]
    if str(len(body)) != fields["bytes"]:
        raise NotLoadable(
            f"{name} is torn: {len(body)} bytes follow its first line, which announces "
            f"{fields['bytes']}"
        )
    if hashlib.sha256(body).hexdigest() != fields["sha256"]:
        raise NotLoadable(f"{name} is damaged: its content does not have the digest that it names")
    return fields["backend"], body


def _write_whole(path: str, content: bytes) -> None:
    """Write beside the path and move into place, so that no reader sees a part."""
    part = f"{path}.{os.getpid()}.{os.urandom(4).hex()}.part"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
