"""The labels that transports write before each line of a node, and their own lines about nodes."""

import re
from typing import NamedTuple

from mlbackends.base.errors import BadInput
from mlbackends.base.patterns import bytes_pattern, pattern
from mlbackends.base.tables import table
from mlbackends.fleet.nodesets import expanded
from mlbackends.model.fleet import Status


class Line(NamedTuple):
    """A line without its label. label: b"" for none. is_name: whether the label names the node.

    may_have_blank: some versions of the transport write a blank between label and text; it is then the first
    character of the text.
    """

    label: bytes
    is_name: bool
    text: bytes
    may_have_blank: bool = False


class Failure(NamedTuple):
    """A transport's own report on a node: that it failed, or could not be reached.

    is_reason: it is from the node itself, and names the reason of the exit code that another report has.
    """

    node: bytes
    status: Status
    error: str
    is_reason: bool = False


_LABEL = bytes_pattern(
    rb"""
      \[(?P<job>[^\]\[\s,]{1,200},\d{1,9})\]                 # mpirun --tag-output, Open MPI 4 and 5
        (?:\[(?P<host>[\w.-]{1,255}):\d+\])?<std(?:out|err|diag)>:
    | \[(?P<pod>(?:pod/)?[\w./:-]{1,512})\]\                 # kubectl logs --prefix
    | \ *(?P<rank>\d{1,9}):(?:\ |$)                          # srun --label
    | (?:slurmstepd-)?                                       # own lines of slurmstepd
      (?P<name>[A-Za-z0-9][\w.-]{0,254}                      # pdsh, clush
        |[0-9A-Fa-f:]{0,40}::[0-9A-Fa-f:.]{0,40}(?:%[\w.-]{1,15})?):(?:\ |$)
    """,
    re.VERBOSE,
)
_ANSIBLE = bytes_pattern(
    rb"(?P<host>[\w.:@-]{0,254}[\w.-]) \| (?P<word>CHANGED|SUCCESS|FAILED|UNREACHABLE)!?"
    rb"(?: \| rc=(?P<code>-?\d+))?(?: >>| => (?P<json>.*)| \| \(stdout\) ?(?P<text>.*))?$",
    re.DOTALL,
)
_OWN = bytes_pattern(
    rb"(?:clush|pdsh@[\w.-]+|srun: error|parallel-ssh|mpirun|backends-push): "
    rb"(?P<nodes>[\w.-]+(?:\[[\d,-]+\][\w.-]*)?(?:,[\w.-]+(?:\[[\d,-]+\][\w.-]*)?)*)"
    rb"(?: \(\d+\))?: (?P<what>.*)"
)
#: Words before a colon that are not nodes, in lower case.
NOT_NODES = frozenset(word.encode() for word in table("fleet/labels.toml")["not_nodes"])
_LATE = pattern(r"time.?out|timed out|TIME LIMIT|exit code 124|code 137|rc=124", re.IGNORECASE)
#: Coreutils' `timeout` is itself a word of these.
_ABSENT = pattern(
    r"not found|no such file|failed to run command|cannot execute|unable to find|exit code 12[67]",
    re.IGNORECASE,
)
_AWAY = pattern(
    r"connection (?:refused|timed out|reset|closed)|no route|could not resolve|unreachable|host key"
    r"|permission denied \(|name or service|connect failed|exit code 255|dial tcp",
    re.IGNORECASE,
)


def may_be_node(word: bytes) -> bool:
    """Return whether a word before a colon can be a node: not a program, and not ImportError."""
    word = word.lower()
    return word not in NOT_NODES and not word.endswith((b"error", b"exception", b"warning"))


def split(line: bytes) -> Line:
    """Return a line as its label and the text after it."""
    match = _LABEL.match(line) if line[:1] not in b'{}"\t' else None
    if match is None:
        return Line(b"", False, line)
    text = line[match.end() :]
    if match["job"]:
        job, _, rank = match["job"].rpartition(b",")
        label = match["host"] or b"rank-%b@%b" % (rank, job)
        return Line(label, bool(match["host"]), text, may_have_blank=True)
    if match["name"]:
        return Line(match["name"], may_be_node(match["name"]), text)
    return Line(match["pod"] or b"task-" + match["rank"], False, text)


def ansible_result(line: bytes) -> tuple[Line, Failure | None] | None:
    """Return the line of a host that Ansible reports on, and its failure; None for another line."""
    match = _ANSIBLE.fullmatch(line)
    if match is None:
        return None
    labelled = Line(match["host"], True, match["text"] or match["json"] or b"")
    code = (match["code"] or b"0").decode()
    if match["word"] == b"UNREACHABLE":
        return labelled, Failure(match["host"], Status.UNREACHABLE, "Ansible could not reach it")
    if match["word"] == b"FAILED":
        error = f"the command ended with {code}"
        late = code in ("124", "137")
        return labelled, Failure(match["host"], Status.TIMEOUT if late else Status.ERROR, error)
    return labelled, None


def failures_in(line: bytes) -> list[Failure]:
    """Return the failures of nodes in a line of clush, pdsh or srun itself."""
    match = _OWN.match(line)
    if match is None:
        return []
    error = explained(match["what"].decode(errors="replace")[:200])
    try:
        names = expanded(match["nodes"].decode())
    except BadInput:
        return []
    is_reason = line.startswith(b"backends-push")
    return [Failure(name.encode(), status_of(error), error, is_reason) for name in names]


def explained(error: str) -> str:
    """Return a message with the meaning of the exit code that it ends with."""
    meaning = table("fleet/labels.toml")["codes"].get(error.rpartition("exit code ")[2], "")
    return f"{error}: {meaning}" if meaning else error


def is_away(error: str) -> bool:
    """Return whether a message means that a node cannot be reached."""
    return _AWAY.search(error) is not None


def status_of(error: str) -> Status:
    """Return the status that a message of ssh or of a scheduler means."""
    if is_away(error):
        return Status.UNREACHABLE
    if _ABSENT.search(error):
        return Status.ERROR
    return Status.TIMEOUT if _LATE.search(error) else Status.ERROR
