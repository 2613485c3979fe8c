"""Waivers: failures that are accepted for a reason, mostly until a day."""

import datetime as dt

from msgspec import Struct
from msgspec.structs import replace

from mlbackends.model.audit import Check, Status


class Waiver(Struct, frozen=True, kw_only=True):
    """Why a failure is accepted. until: the last day of it; None if it has no end."""

    reason: str
    until: dt.date | None = None

    def is_over(self, today: dt.date) -> bool:
        """Return whether the last day has passed."""
        return self.until is not None and today > self.until

    def applied(self, check: Check, today: dt.date) -> Check:
        """Return a failed check as waived, or as failed with the reason if the waiver is over."""
        if check.status is not Status.FAILED:
            return check
        is_over = self.is_over(today)
        end = f" until {self.until}" if self.until else ""
        accepted = f"{'it was ' if is_over else ''}accepted{end}: {self.reason}"
        status = Status.FAILED if is_over else Status.WAIVED
        message = f"{check.message or check.title} ({accepted})"
        return replace(check, status=status, message=message)
