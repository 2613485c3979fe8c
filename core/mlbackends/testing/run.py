"""What the plugin keeps for one run of pytest, and how a test ends that cannot run here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import pytest

from mlbackends.testing import options

if TYPE_CHECKING:
    from mlbackends.testing.options import Settings

SHARE = "backends_share"
"""Under this name a worker is told the folder that it shares with others."""


class Run:
    """One run of pytest.

    is_used: whether any test has to do with us. is_shown: whether the facts stand in the report. wrong:
    what is wrong with the markers of a test, by its name.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.is_used = False
        self.is_shown = False
        self.wrong: dict[str, str] = {}
        self.share = getattr(config, "workerinput", {}).get(SHARE, "")
        self.own_share = ""
        self._settings: Settings | None = None

    @property
    def settings(self) -> Settings:
        """What the run was told; read when it is first wanted."""
        if self._settings is None:
            from mlbackends.testing.machine import make_current

            self._settings = options.settings(self.config, self.share)
            make_current(self._settings.machine)
        return self._settings

    def end(self) -> None:
        """Leave nothing behind."""
        if self._settings is not None:
            from mlbackends.testing.machine import forget

            forget(self._settings.machine)
        if self.own_share:
            import shutil

            shutil.rmtree(self.own_share, ignore_errors=True)


RUN = pytest.StashKey[Run]()


def run_of(config: pytest.Config) -> Run:
    """Return what is kept for a run."""
    return config.stash[RUN]


def stop(why: str, *, is_failure: bool) -> NoReturn:
    """End a test before it begins."""
    if is_failure:
        pytest.fail(why, pytrace=False)
    # The place of the test, as pytest's own marks tell it; all skips would stand in this file else.
    raise pytest.skip.Exception(why, _use_item_location=True)
