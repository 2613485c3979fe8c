"""Open a library, ask it, use it: the rungs above FOUND, and what stopped the climb.

Runs in a process that is made for it: see `mlbackends.isolation.process`.
"""

import ctypes
import re
import time
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from mlbackends.isolation.protocol import Reply
from mlbackends.model import registry
from mlbackends.model.reasons import NotUsable, Reason
from mlbackends.model.records import Answer, Library, Presence


def climb(job: int, probe: str, library: Library, depth: Presence) -> Iterator[Reply]:
    """Yield what is known after each rung; the last reply is marked final."""
    start = time.perf_counter()
    answer = Answer(library)
    presence = Presence.FOUND

    def reply(reason: Reason | None = None, failure: str = "", final: bool = True) -> Reply:
        seconds = time.perf_counter() - start
        return Reply(job, presence, answer, reason, failure, final, seconds)

    try:
        module = registry.load("mlbackends_probes", probe)
        opened = ctypes.CDLL(library.path)
        if hasattr(module, "load"):
            answer = module.load(opened, library)
        presence = Presence.LOADABLE
        if depth is Presence.USABLE and hasattr(module, "use"):
            yield reply(final=False)
            answer = _joined(answer, module.use(opened, answer.library))
            presence = Presence.USABLE
    except NotUsable as stop:
        if isinstance(stop.learned, Answer):
            answer = _joined(answer, stop.learned)
        yield reply(stop.reason)
    except OSError as error:
        if error.errno is None:  # as ctypes raises what the loader says
            yield reply(_refused(library, str(error)))
        else:  # a file of ours, where a library has taken all descriptors
            yield _broken(reply, error)
    except AttributeError as error:
        if symbol := re.search(
            r"undefined symbol: (\w+)|dlsym\([^,]*, (\w+)\)|function '(\w+)'", str(error)
        ):
            name = next(group for group in symbol.groups() if group)
            yield reply(Reason("missing-symbol", f"{library.path} has no function {name}"))
        else:
            yield _broken(reply, error)
    except Exception as error:  # noqa: BLE001  a bug in a probe is reported as such, with its traceback
        yield _broken(reply, error)
    else:
        yield reply()


def unspeakable(reply: Reply, error: Exception) -> Reply:
    """Return what stands in for a reply that no line can hold: text that is not UTF-8, foreign types."""
    said = f"what the probe tells fits into no record: {type(error).__name__}: {error}"
    return Reply(
        reply.id,
        reply.presence,
        reason=Reason("probe-error", said),
        failure=said,
        final=reply.final,
    )


def _broken(reply: Callable[[Reason, str], Reply], error: Exception) -> Reply:
    import traceback

    said = f"the probe failed: {type(error).__name__}: {error}"
    trace = "".join(traceback.format_exception(error))
    return reply(Reason("probe-error", said), trace)


def _joined(first: Answer, second: Answer) -> Answer:
    return replace(
        second,
        devices=second.devices or first.devices,
        facts={**first.facts, **second.facts},
        warnings=first.warnings + tuple(w for w in second.warnings if w not in first.warnings),
    )


def _refused(library: Library, said: str) -> Reason:
    """Tell a library that misses another one from one that is broken itself, by the loader's words."""
    missing = re.match(r"(\S+): cannot open shared object file: No such file", said)
    if missing and missing[1] != library.path:
        hint = f"install what brings {missing[1]}, or name its folder in LD_LIBRARY_PATH"
        return Reason(
            "missing-dependency", f"it needs {missing[1]}, which the loader does not find", hint
        )
    return Reason("dlopen-failed", f"the loader says: {said}")
