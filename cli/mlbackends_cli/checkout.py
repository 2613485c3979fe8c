"""Where something stands for a CI service: as a path from the root of its checkout."""

import os
import re

from mlbackends.model.audit import Check, Outcome
from mlbackends_cli.plain import one_line

_ROOTS = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
"""The variables in which GitHub and GitLab tell the root; without them it is the current folder."""


def location(outcome: Outcome, check: Check) -> tuple[str, int]:
    """Return the file and line that a check is shown at.

    Services refuse a finding without a file: one that nothing declares stands at the report that was
    looked at, or at a name for the machine, line 1.
    """
    if check.place is not None:
        return path(check.place.file), max(1, check.place.line)
    if os.path.exists(outcome.subject):
        return path(outcome.subject), 1
    return re.sub(r"[^\w.-]+", "-", one_line(outcome.subject)).strip("-.") or "machine", 1


def path(file: str) -> str:
    """Return a file's path from the root of the checkout, with "/"; its bare name where it is outside."""
    try:
        root = next(filter(None, map(os.environ.get, _ROOTS)), os.curdir)
        relative = os.path.relpath(os.path.realpath(file), os.path.realpath(root))
    except (OSError, ValueError):  # the current folder is gone; another drive; a NUL
        relative = os.pardir
    if relative.split(os.sep)[0] in (os.pardir, os.curdir):
        relative = os.path.basename(file.rstrip(os.sep)) or "checkout"
    return one_line(relative.replace(os.sep, "/")) or "checkout"
