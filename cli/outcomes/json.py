"""JSON: the whole outcome as one object, indented; `backends schema outcome` describes it."""

from typing import Any

import msgspec

from mlbackends.cli.terminal import Page
from mlbackends.model.audit import Outcome


def outcome(outcome: Outcome, page: Page) -> str:
    """Return the outcome as JSON."""
    del page
    try:
        data = msgspec.json.encode(outcome)
    except UnicodeEncodeError:  # a file's name that is not UTF-8
        data = msgspec.json.encode(_whole(msgspec.to_builtins(outcome)))
    return msgspec.json.format(data, indent=2).decode()


def _whole(value: Any) -> Any:
    """Return data in which every half of a character is replaced."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {_whole(name): _whole(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(each) for each in value]
    return value
