"""JSON: the whole outcome as one object, indented; `backends schema outcome` describes it."""

import msgspec

from mlbackends.cli.terminal import Page
from mlbackends.model.audit import Outcome


def outcome(outcome: Outcome, page: Page) -> str:
    """Return the outcome as JSON."""
    del page
    return msgspec.json.format(msgspec.json.encode(outcome), indent=2).decode()
