"""Why something is not so: a code that stays, and a sentence that stands alone.

CODES holds the codes that the engine and several probes share. A probe may declare more in a
`CODES` of its own; `mlbackends.survey.all_codes` has them all.
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
    "unknown-probe": "The probe is not installed here, so that nothing declares which of its facts identify.",
    # what is wrong although it is there
    "override-exceeds-hardware": "A variable asks for more than the hardware has.",
    "override-invalid": "A variable holds a value that is ignored or refused.",
    "hidden-by-variable": "A variable hides devices that are there.",
    "limit-below-hardware": "A limit leaves less than the machine has, and programs may not know.",
    "conflict": "Two things are here that do not go together.",
    "mitigation-costs-speed": "A kernel mitigation is on that costs speed.",
    "degraded": "It works, but below what it could do.",
    "pin-mismatch": "A package pins one version, and another is installed.",
    "installed-twice": "Two installations of one package are in one folder: one wrote over the other.",
    "installation-hidden": "A package is installed, and another installation of it is imported.",
    "hidden-by-user-site": "The user's own copy of a package is imported, not the environment's.",
    "metadata-mismatch": "A package's files are of another version than its metadata says.",
    "file-owned-twice": "Two packages installed the same file; the later one overwrote the earlier.",
    # why an attention backend does not take a problem
    "invalid-problem": "No attention backend could answer it: its parts do not go together.",
    "switched-off": "A switch of torch.backends, or a filter of python_native, keeps it out.",
    "missing-part": "It needs a package, a compiler or a driver that this installation lacks.",
    "not-built": "The library that it belongs to is not there, or was built without it.",
    "wrong-device": "The tensors are on a device that it does not run on.",
    "wrong-capability": "The GPU is older or newer than those that it is made for.",
    "missing-feature": "The processor lacks an instruction set that it needs.",
    "wrong-dtype": "It does not take this element type.",
    "wrong-rank": "Query, key and value do not have the number of dimensions that it needs.",
    "batch-differs": "Query, key and value differ in batch size, and it does not broadcast.",
    "heads-differ": "Query, key and value differ in heads in a way that it does not take.",
    "head-dim-differs": "The value is not as wide as query and key, and it needs that.",
    "head-dim-too-large": "The rows of query, key or value are longer than it takes.",
    "head-dim-unaligned": "The rows of query, key or value are no multiple of what it needs.",
    "empty-sequence": "A length is zero, and it needs at least one row.",
    "causal-not-square": "It takes a causal mask only where query and key are equally long.",
    "causal-lower-right": "It takes a causal mask only from the upper left corner.",
    "rows-not-contiguous": "The elements of a row do not lie side by side.",
    "storage-unaligned": "A tensor starts at an address that is no multiple of what it needs.",
    "mask": "It takes no mask but a causal one.",
    "mask-gradient": "The mask requires a gradient, and it gives none.",
    "mask-rank": "It does not take a mask of this number of dimensions.",
    "dropout": "It takes no dropout, or not this probability.",
    "gradient": "The inputs require a gradient, and it gives none, or not for this problem.",
    "logsumexp": "The logarithm of the sum of each row's exponentials is asked for, and it tells none.",
    "inner-dtype": "It does not compute in the type that is asked for inside.",
    "nested": "It does not take nested tensors, or not these.",
    "not-deterministic": "Deterministic algorithms are asked for, and it is none.",
    "length-unsupported": "It does not take this length of query or key.",
    "library-refuses": "The library behind it was asked for this very problem, and does not take it.",
    "too-many-heads": "Batch or heads are more than it can launch.",
}
