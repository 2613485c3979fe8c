"""JSON: any record as one object, indented; `backends schema` describes them."""

from typing import TYPE_CHECKING, Any

import msgspec

from mlbackends_cli.output import indented, json_data
from mlbackends_cli.terminal import Page

if TYPE_CHECKING:
    from mlbackends.model.audit import Outcome


def record(record: Any, _page: Page) -> str:
    """Return any record."""
    return indented(record)


def outcome(outcome: "Outcome", _page: Page) -> str:
    """Return an outcome; numbers that JSON lacks, which evidence may hold, become text."""
    return indented(json_data(msgspec.to_builtins(outcome)))
