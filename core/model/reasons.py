"""Why something is not so: a code that stays, and a sentence that stands alone.

CODES holds the codes that the engine and several probes share. A probe may declare more in a
`CODES` of its own; `mlbackends.probing.survey.all_codes` has them all.
"""

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from mlbackends.model.records import Answer


class Reason(Struct, frozen=True, omit_defaults=True):
    """Why something is not so.

    code: stable, from CODES. message: what was seen and what was needed, one sentence that stands
    alone. hint: what the reader can do.
    """

    code: str
    message: str
    hint: str = ""


class NotUsable(Exception):
    """Raised by a probe's `load` or `use` at the first rung that breaks.

    learned: what had been learned until then; it is kept in the report.
    """

    def __init__(
        self, code: str, message: str, hint: str = "", learned: "Answer | None" = None
    ) -> None:
        super().__init__(message)
        self.reason = Reason(code, message, hint)
        self.learned = learned


UNCERTAIN = frozenset({"timed-out", "not-asked", "permission-denied", "unreadable", "probe-error"})
"""Codes that leave open how it is: what `--strict` ends with 3 for."""

CODES = {
    # looking
    "not-found": "It was looked for in every place that is listed, and is in none.",
    "not-this-platform": "It exists only for another operating system or processor.",
    "permission-denied": "A file that would tell is there, and this user may not read it.",
    "unreadable": "A file that would tell is there, and what it holds makes no sense.",
    "wrong-architecture": "The file is built for another processor than this process runs on.",
    "not-a-library": "The file has a library's name, and is none: a linker script, a stub, an empty file.",
    "dangling-link": "The name is a symbolic link to a file that is not there.",
    "not-mapped": "The process that is looked at has no copy of it mapped.",
    "metadata-only": "A package says that it is installed; its files were not found.",
    "only-the-framework-knows": "No file of it is public: only the framework that drives it can tell.",
    # opening
    "dlopen-failed": "The dynamic loader refused to open it; its own words are in the message.",
    "missing-dependency": "A library that it needs is not found by the dynamic loader.",
    "missing-symbol": "It opens, but lacks a function that it should have.",
    "stub-library": "It is the linker's stand-in from a toolkit's stubs folder, not the real library.",
    # asking and computing
    "call-failed": "It opens, but a call returned an error; the code and its name are in the message.",
    "wrong-result": "It ran, and what it computed is wrong.",
    "no-driver": "It needs a driver that is not there or not loaded.",
    "no-device": "It needs a device, and none is there or visible.",
    "driver-too-old": "The driver is older than this library needs.",
    "driver-mismatch": "The driver's kernel module and its user-space library are of different versions.",
    "too-old": "The version is older than what is needed.",
    "unsupported-hardware": "It works, but not on this processor or device.",
    "no-use-check": "It opens and answers; nothing here computes with it, so nothing more is claimed.",
    # the child that asks
    "crashed": "The child that asked it was killed by a signal; the signal is in the message.",
    "exited": "It ended the child that asked it, without an answer.",
    "not-asked": "No process could be started in which it would be opened.",
    "timed-out": "It did not answer within the time limit, and the child was killed.",
    "probe-error": "The probe itself failed: a bug of ours; the traceback is in the report.",
    # what is wrong although it is there
    "override-exceeds-hardware": "A variable asks for more than the hardware has.",
    "override-invalid": "A variable holds a value that is ignored or refused.",
    "hidden-by-variable": "A variable hides devices that are there.",
    "limit-below-hardware": "A limit leaves less than the machine has, and programs may not know.",
    "conflict": "Two things are here that do not go together.",
    "mitigation-costs-speed": "A kernel mitigation is on that costs speed.",
    "degraded": "It works, but below what it could do.",
    "pin-mismatch": "A package pins one version, and another is installed.",
    "file-owned-twice": "Two packages installed the same file; the later one overwrote the earlier.",
}
