"""Open a library, load what its probe reads, and use it: one reply after each presence level.

Runs in a process that is made for it: see `mlbackends.isolation.process`.
"""

import ctypes
import os
import re
import sys
import time
import traceback
from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from mlbackends.base import registry
from mlbackends.base.reasons import NotUsable, Reason
from mlbackends.host.host import Host
from mlbackends.isolation.protocol import EXTENSION, Reply, Request, send
from mlbackends.libraries.c_calls import open_driver
from mlbackends.model.records import Answer, Library, Presence

_MISSING = re.compile(r"(\S+): cannot open shared object file: No such file")


def answer_one() -> None:
    """Be the child of one file: read one request from stdin, answer on a duplicate of stdout."""
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        work(msgspec.json.decode(sys.stdin.buffer.read(), type=Request), output)
    except OSError:
        os._exit(1)
    os._exit(0)


def work(request: Request, output: int) -> None:
    """Do the jobs of one request, one reply each, and one before each step that may not come back.

    Raises OSError where the library has closed the pipe.
    """

    def identity() -> tuple[int, int]:
        status = os.fstat(output)
        return status.st_dev, status.st_ino

    ours = identity()
    for job in request.jobs:
        for reply in open_library(job.id, job.probe, job.library, request.depth):
            if identity() != ours:  # closed, and the number given to a file of the library's
                raise OSError("the library has closed the pipe")
            try:
                send(output, reply, request.seal)
            except (TypeError, ValueError) as error:  # text that is not UTF-8, foreign types
                kind = type(error).__name__
                message = f"what the probe returned cannot be serialised: {kind}: {error}"
                reason = Reason("probe-error", message)
                short = Reply(reply.id, reply.presence, None, reason, message, reply.final)
                send(output, short, request.seal)


def open_library(job: int, probe: str, library: Library, depth: Presence) -> Iterator[Reply]:
    """Yield a reply after each level; the last one is marked final."""
    start = time.perf_counter()
    answer = Answer(library)
    presence = Presence.FOUND
    reason: Reason | None = None
    failure = ""

    def reply(final: bool = True) -> Reply:
        return Reply(job, presence, answer, reason, failure, final, time.perf_counter() - start)

    try:
        module = registry.load(registry.PROBES, probe)
        # Only a driver's library may lack a function.
        is_driver = getattr(module, "GROUP", "") == "accelerator"
        if sys.platform == "win32":
            # As its package does: cuDNN and NVRTC open files of their folder by name, through PATH.
            folder = os.path.dirname(os.path.normpath(library.path))
            os.add_dll_directory(folder)
            os.environ["PATH"] = f"{folder};{os.environ.get('PATH', '')}"
        opened, missing = open_driver(library.path) if is_driver else (_opened(library.path), "")
        if missing:
            message = f"{library.path} needs the function {missing}, which no library defines"
            hint = "install the driver's libraries again, all of one release"
            answer = Answer(library, warnings=(Reason("missing-symbol", message, hint),))
        is_extension = library.found_by == EXTENSION
        if hasattr(module, "load") and not is_extension:
            answer = _joined(answer, module.load(opened, library))
        presence = Presence.LOADABLE
        if depth is Presence.USABLE and hasattr(module, "use") and not is_extension:
            yield reply(final=False)
            answer = _joined(answer, module.use(opened, answer.library))
            presence = Presence.USABLE
    except NotUsable as stop:
        if isinstance(stop.learned, Answer):
            answer = _joined(answer, stop.learned)
        reason = stop.reason
    except Exception as error:  # noqa: BLE001  a bug in a probe is reported as such, with its traceback
        reason = _refusal(library, error)
        if reason is None:
            message = f"the probe failed: {type(error).__name__}: {error}"
            reason = Reason("probe-error", message)
            failure = "".join(traceback.format_exception(error))
    yield reply()


def _opened(path: str, *above: str) -> ctypes.CDLL:
    """Open a library; one in a wheel's folder NAME.libs after what it needs of that folder.

    The package's own files find these there by an RPATH, which the library itself may not have.
    """
    folder, tried = os.path.dirname(path), ""
    while True:
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            missing = _MISSING.match(str(error))
            needed = os.path.join(folder, missing[1]) if missing and folder.endswith(".libs") else ""
            if needed in (path, tried, *above) or not os.path.exists(needed):
                raise
            _opened(needed, path, *above)
            tried = needed


def _joined(first: Answer, second: Answer) -> Answer:
    return replace(
        second,
        devices=second.devices or first.devices,
        facts={**first.facts, **second.facts},
        warnings=first.warnings + tuple(w for w in second.warnings if w not in first.warnings),
    )


def _refusal(library: Library, error: Exception) -> Reason | None:
    """Return why the loader refuses a library, by its message; None for any other error."""
    message = str(error)
    if isinstance(error, AttributeError):
        symbol = re.search(r"undefined symbol: (\w+)|dlsym\([^,]*, (\w+)\)|function '(\w+)'", message)
        if symbol is None:
            return None
        name = next(group for group in symbol.groups() if group)
        return Reason("missing-symbol", f"{library.path} has no function {name}")
    if not isinstance(error, OSError):
        return None
    if message.startswith("exception: "):  # ctypes on Windows catches what would end the process
        return Reason("crashed", f"calling {library.path} ended with {message[11:]}")
    # ctypes raises the loader's errors without a number, but for most of Windows' own. Another number is of
    # a file of ours, where a library has taken all descriptors.
    code = getattr(error, "winerror", None)
    if code or "(or one of its dependencies)" in message:
        from mlbackends.libraries import windows

        return windows.refusal(Host(), library.path, code or windows.NO_MODULE)
    if error.errno is not None:
        return None
    missing = _MISSING.match(message)
    if missing and missing[1] != library.path:
        hint = f"install the package with {missing[1]}, or name its folder in LD_LIBRARY_PATH"
        return Reason("missing-dependency", f"it needs {missing[1]}, which the loader does not find", hint)
    return Reason("dlopen-failed", f"the loader reports: {message}")
