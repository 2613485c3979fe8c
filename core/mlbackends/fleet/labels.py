"""What transports write before each line of a node, and the lines that they write themselves."""

import re
from typing import NamedTuple

from mlbackends.base.errors import BadInput
from mlbackends.model.fleet import Status


class Line(NamedTuple):
    """A line without its label. label: b"" for none. is_name: whether the label names the node.

    may_have_blank: some versions of the transport have a blank between the label and the text, which is
    then the text's first.
    """

    label: bytes
    is_name: bool
    text: bytes
    may_have_blank: bool = False


class Word(NamedTuple):
    """What a transport says itself of a node: that it ended, or could not be reached."""

    node: bytes
    status: Status
    error: str


_LABEL = re.compile(
    rb"""
      \[(?P<job>[^\]\[\s,]{1,200},\d{1,9})\]                 # mpirun --tag-output, Open MPI 4 and 5
        (?:\[(?P<host>[\w.-]{1,255}):\d+\])?<std(?:out|err|diag)>:
    | \[(?P<pod>(?:pod/)?[\w./:-]{1,512})\]\                 # kubectl logs --prefix
    | \ *(?P<rank>\d{1,9}):(?:\ |$)                          # srun --label
    | (?:slurmstepd-)?                                       # what slurmstepd says itself
      (?P<name>[A-Za-z0-9][\w.-]{0,254}                      # pdsh, clush
        |[0-9A-Fa-f:]{0,40}::[0-9A-Fa-f:.]{0,40}(?:%[\w.-]{1,15})?):(?:\ |$)
    """,
    re.VERBOSE,
)
_ANSIBLE = re.compile(
    rb"(?P<host>[\w.:@-]{0,254}[\w.-]) \| (?P<word>CHANGED|SUCCESS|FAILED|UNREACHABLE)!?"
    rb"(?: \| rc=(?P<code>-?\d+))?(?: >>| => (?P<json>.*)| \| \(stdout\) ?(?P<text>.*))?$",
    re.DOTALL,
)
_OWN = re.compile(
    rb"(?:clush|pdsh@[\w.-]+|srun: error|parallel-ssh): "
    rb"(?P<nodes>[\w.-]+(?:\[[\d,-]+\][\w.-]*)?(?:,[\w.-]+(?:\[[\d,-]+\][\w.-]*)?)*)"
    rb"(?: \(\d+\))?: (?P<what>.*)"
)
#: What stands before a colon and is no node, in lower case.
NO_NODES = frozenset({
    b"srun", b"slurmstepd", b"salloc", b"clush", b"pdsh", b"ssh", b"bash", b"sh", b"mpirun", b"prterun",
    b"kubectl", b"error", b"warning", b"info", b"debug", b"note", b"hint", b"backends", b"traceback",
})  # fmt: skip
_LATE = re.compile(r"time.?out|timed out|TIME LIMIT|exit code 124|code 137|rc=124", re.IGNORECASE)
_AWAY = re.compile(
    r"connection (?:refused|timed out|reset|closed)|no route|could not resolve|unreachable|host key"
    r"|permission denied \(|name or service|connect failed|exit code 255|dial tcp",
    re.IGNORECASE,
)


def split(line: bytes) -> Line:
    """Return a line as its label and the text behind it."""
    found = _LABEL.match(line) if line[:1] not in b'{}"\t' else None
    if found is None:
        return Line(b"", False, line)
    text = line[found.end() :]
    if found["job"]:
        job, _, rank = found["job"].rpartition(b",")
        label = found["host"] or b"rank-%b@%b" % (rank, job)
        return Line(label, bool(found["host"]), text, may_have_blank=True)
    if found["name"]:
        return Line(found["name"], found["name"].lower() not in NO_NODES, text)
    return Line(found["pod"] or b"task-" + found["rank"], False, text)


def of_ansible(line: bytes) -> tuple[Line, Word | None] | None:
    """Return what a line of Ansible's says of a host, and the word that it has for it; None for another."""
    found = _ANSIBLE.fullmatch(line)
    if found is None:
        return None
    text = found["text"] or found["json"] or b""
    own = Line(found["host"], True, text)
    code = (found["code"] or b"0").decode()
    if found["word"] == b"UNREACHABLE":
        return own, Word(found["host"], Status.UNREACHABLE, "Ansible could not reach it")
    if found["word"] == b"FAILED":
        error = f"the command ended with {code}"
        late = code in ("124", "137")
        return own, Word(found["host"], Status.TIMEOUT if late else Status.ERROR, error)
    return own, None


def own_words(line: bytes) -> list[Word]:
    """Return what clush, pdsh or srun say themselves of nodes in a line."""
    from mlbackends.fleet.nodesets import expanded

    found = _OWN.match(line)
    if found is None:
        return []
    error = found["what"].decode(errors="replace")[:200]
    try:
        names = expanded(found["nodes"].decode())
    except BadInput:
        return []
    return [Word(name.encode(), status_of(error), error) for name in names]


def status_of(error: str) -> Status:
    """Return what a sentence of ssh or of a scheduler means."""
    if _AWAY.search(error):
        return Status.UNREACHABLE
    return Status.TIMEOUT if _LATE.search(error) else Status.ERROR
