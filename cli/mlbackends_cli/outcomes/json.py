"""JSON: the whole outcome as one object, indented; `backends schema outcome` describes it."""

import math
import re
from typing import Any

import msgspec

from mlbackends.model.audit import Outcome
from mlbackends_cli.output import indented
from mlbackends_cli.terminal import Page

_HALVES = re.compile("[\ud800-\udfff]")


def outcome(outcome: Outcome, page: Page) -> str:
    """Return the outcome as JSON."""
    del page
    return indented(_fit(msgspec.to_builtins(outcome)))


def _fit(value: Any) -> Any:
    """Return data without what JSON cannot hold: halves of characters, and numbers that are none."""
    if isinstance(value, str):
        return value if value.isascii() else _HALVES.sub("\ufffd", value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {_fit(name): _fit(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_fit(each) for each in value]
    return value
