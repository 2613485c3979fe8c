"""What precedes a library's line: a launcher's prefix, and the capture's own stamp.

[rank0]: [default3]: [0]                    torchrun, torch.distributed, mpiexec -prepend-rank
[1,0]<stdout>: [host-12@1,0]<stdout>:       mpirun --tag-output, Open MPI 4 and 5
3:                                          srun --label
2026-11-21T16:35:59.123456789Z stdout F     Kubernetes
web-1  |                                    docker compose
(train pid=1234)                            Ray
[pid 12 tid 13 end 987654321]               our capture: the end, in nanoseconds since the epoch

Terminal colours may surround or interrupt a line, as with `docker compose` and `grep --color`.
"""

import re
from functools import lru_cache
from typing import NamedTuple

_STAMP = rb"\[pid (\d{1,10})(?: tid (\d{1,10}))?(?: end ([1-8]?\d{1,18}))?\] "
_RANK = rb"\[(?:[A-Za-z]{1,16} ?)?\d{1,7}(?:[,:]\d{1,7})*\](?:<std(?:out|err|diag)>)?:? ?"
_JOB = rb"\[[\w.\-]{1,200}@\d{1,7},\d{1,7}\](?:<std(?:out|err)>)?:? ?"
_LABEL = rb" *\d{1,7}: "
_TIME = rb"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?:? "
_STREAM = rb"std(?:out|err) [FP] "
_SERVICE = rb"[\w.\-]{1,200}[-_]\d{1,5} *\| "
_PROCESS = rb"\([\w. \-]{0,200}pid=\d{1,10}[^()]{0,200}\) "

_KINDS = {
    "bracket": _RANK + b"|" + _JOB,
    "number": _LABEL,
    "time": _TIME,
    "stream": _STREAM,
    "service": _SERVICE,
    "process": _PROCESS,
}
_LAUNCHERS = b"|".join(_KINDS.values())
_PREFIX = re.compile(rb"((?:(?!\[pid )(?:" + _LAUNCHERS + rb")){0,4})(?:" + _STAMP + rb")?")
_PART = re.compile("|".join(f"(?P<{kind}>{form.decode()})" for kind, form in _KINDS.items()))


class Prefix(NamedTuple):
    """A prefix taken apart.

    text: the launcher's part, as it was. source: what it names: "rank0". end_ns: since the epoch.
    """

    text: str
    source: str
    process: int | None
    thread: int | None
    end_ns: int | None


NO_PREFIX = Prefix("", "", None, None, None)


def prefix(text: bytes) -> Prefix | None:
    """Parse the text before a line; None unless it is a prefix."""
    if not text:
        return NO_PREFIX
    if len(text) > 1000:
        return None
    found = _PREFIX.fullmatch(text)
    if found is None:
        return None
    launchers, *numbers = found.groups()
    before = launchers.decode()
    source = _source(before) if before else ""
    return Prefix(before, source, *(None if number is None else int(number) for number in numbers))


@lru_cache(maxsize=1024)
def _source(launchers: str) -> str:
    """Return what launchers' prefixes name, the same in each line: no time of day, no stream."""
    named = []
    for part in _PART.finditer(launchers):
        match part.lastgroup:
            case "bracket":
                named.append(part[0].partition("]")[0].removeprefix("["))
            case "number":
                named.append(part[0].strip(" :"))
            case "service":
                named.append(part[0].rstrip(" |"))
            case "process":
                named.append(part[0].strip()[1:-1])
    return " ".join(filter(None, named))


_ESCAPE = b"\x1b"
_SEQUENCE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\([0-2AB])")


def plain(text: bytes) -> bytes:
    """Return the text without sequences that colour it or move the cursor."""
    return _SEQUENCE.sub(b"", text) if _ESCAPE in text else text
