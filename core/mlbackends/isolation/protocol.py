"""Requests to open libraries, and replies: the lines that go over the pipes to a child."""

import os

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
#: What a library is found by that is the extension module of a package: it is only opened.
EXTENSION = "extension"


class Job(Struct, frozen=True):
    """One library for one probe."""

    id: int
    probe: str
    library: Library


class Request(Struct, frozen=True):
    """All jobs of one file, for one process.

    seal: precedes each reply of that process. What a library writes to our pipes has no seal, and is not
    mistaken for an answer.
    """

    jobs: tuple[Job, ...]
    depth: Presence
    timeout: float
    seal: str = ""


class Reply(Struct, frozen=True, omit_defaults=True):
    """The result of a job. final: no more replies follow for it. failure: a traceback of our code."""

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


def send(output: int, reply: Reply, seal: str) -> None:
    """Write a reply on a separate line, even if a library has written part of a line before."""
    data = b"\n" + seal.encode() + msgspec.json.encode(reply) + b"\n"
    while data:
        data = data[os.write(output, data) :]


def unanswered(job: Job, before: Reply | None, reason: Reason, seconds: float) -> Reply:
    """Return the reply for a job whose process ended without one. before: its last reply, if any."""
    if before is None:
        return Reply(job.id, Presence.FOUND, reason=reason, seconds=seconds)
    return Reply(job.id, before.presence, before.answer, reason, seconds=seconds)


def reason_of(code: int | None, timeout: float, printed: bytes, doing: str = "it ") -> Reason:
    """Return why a process gave no answer, by its exit code; None where it was stopped as too slow."""
    if code is None:
        return Reason("timed-out", f"{doing}gave no answer within {timeout:g} s, and was stopped")
    from mlbackends.host.command import ending  # it imports subprocess

    kind, how = ending(code)
    lines = printed.decode(errors="replace").strip().splitlines()
    last_words = f"; it printed: {lines[-1].strip()[:200]}" if lines else ""
    return Reason(kind, f"{doing}ended the process with {how}{last_words}")
