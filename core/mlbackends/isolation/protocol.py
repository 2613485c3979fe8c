"""Requests to open libraries, and replies: the lines that go over the pipes to a child."""

import msgspec
from msgspec import Struct

from mlbackends.base.reasons import Reason
from mlbackends.model.records import Answer, Library, Presence

#: Bytes of a reply; more without a newline is none of ours.
REPLY_LIMIT = 8 << 20

#: The probes whose files take longest to open: libtorch_cpu, and the drivers of Vulkan.
OPENED_FIRST = (
    *("torch", "fbgemm", "kleidiai", "mkl", "nnpack", "onednn", "qnnpack", "xnnpack"),
    "vulkan",
)


class Job(Struct, frozen=True):
    """One library for one probe."""

    id: int
    probe: str
    library: Library


class Request(Struct, frozen=True):
    """All jobs of one file, for one process.

    seal: stands before each reply of that process, and before what the child sends on of it. What a
    library writes to our pipes has it not, and is not taken for an answer.
    """

    jobs: tuple[Job, ...]
    depth: Presence
    timeout: float
    seal: str = ""


class Reply(Struct, frozen=True, omit_defaults=True):
    """What came of a job. final: no more replies follow for it. failure: a traceback of our own."""

    id: int
    presence: Presence
    answer: Answer | None = None
    reason: Reason | None = None
    failure: str = ""
    final: bool = True
    seconds: float = 0.0


def read_reply(line: bytes, seal: str) -> Reply | None:
    """Decode one line of a process; None for what the library itself has written to the pipe."""
    if not line.startswith(seal.encode()):
        return None
    try:
        return msgspec.json.decode(line[len(seal) :], type=Reply)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
