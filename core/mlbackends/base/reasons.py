"""Why something is not so: a stable code, and a sentence that can be read alone.

reason_codes.json holds the codes that the engine and several probes share. A probe may declare more in its
`CODES`; `mlbackends.survey.all_codes` returns them all.
"""

from msgspec import Struct

from mlbackends.base.tables import table


class Reason(Struct, frozen=True, omit_defaults=True):
    """Why something is not so.

    code: stable, from CODES. message: what was seen and what was needed, in one sentence that can be
    read alone. hint: what the reader can do.
    """

    code: str
    message: str
    hint: str = ""


class NotUsable(Exception):
    """Raised by a probe's `load` or `use` at the first level that is not reached.

    learned: the `Answer` with what was learned until then, which the report keeps; None for nothing.
    """

    def __init__(self, code: str, message: str, hint: str = "", learned: Struct | None = None) -> None:
        super().__init__(message)
        self.reason = Reason(code, message, hint)
        self.learned = learned


#: Codes that leave open how it is: what `--strict` ends with 3 for.
UNCERTAIN = frozenset(
    ["timed-out", "not-answering", "not-asked", "permission-denied", "unreadable", "probe-error"]
)


#: Codes of what was not imported, or opens and was not made to compute: no fault of it.
UNCHECKED = frozenset({"no-use-check", "not-computed", "not-imported"})


def shared_codes() -> dict[str, str]:
    """Return the codes that the engine and several probes share, each with its sentence."""
    groups: dict[str, dict[str, str]] = table("base/reason_codes")
    return {code: sentence for group in groups.values() for code, sentence in group.items()}
