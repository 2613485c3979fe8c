"""The fixtures of the plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.testing.run import run_of, stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlbackends.model.records import Report
    from mlbackends.testing.attention import UsableAttention
    from mlbackends.testing.tolerances import Tolerance


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Run the test once on each kind of device that is usable, such as "cpu" and "cuda"."""
    from mlbackends.testing import devices

    settings = run_of(request.config).settings
    given = getattr(request, "param", None)
    if given is None:  # asked for while the test runs, so that there is one value only
        given = devices.choices(settings.machine, settings.devices, None)[0]
    if isinstance(given, str):
        devices.check_name(given)
        given = devices.Choice(given, devices.why_unusable(settings.machine, given))
    _usable(request, given.why)
    return str(given.name)


@pytest.fixture(scope="session")
def attention_backend(request: pytest.FixtureRequest) -> UsableAttention:
    """Run the test once with each attention backend that is usable, on its device."""
    from mlbackends.testing import attention, devices

    settings = run_of(request.config).settings
    given = getattr(request, "param", None)
    if not isinstance(given, attention.AttentionChoice):
        limit = (given,) if isinstance(given, str) else None
        found = devices.choices(settings.machine, settings.devices, None)
        usable = [choice.name for choice in found if not choice.why]
        given = attention.choices(settings.machine, usable, settings.attention, limit)[0]
    _usable(request, given.why)
    return attention.usable(given)


@pytest.fixture(scope="session")
def tolerance() -> Callable[..., Tolerance]:
    """Give the function mlbackends.testing.tolerance."""
    from mlbackends.testing.tolerances import tolerance as found

    return found


@pytest.fixture(scope="session")
def backends_report(request: pytest.FixtureRequest) -> Report:
    """Give the whole report of the machine, as far as --backends-depth goes."""
    from mlbackends.model import registry

    machine = run_of(request.config).settings.machine
    return machine.report(() if machine.subject else registry.names("mlbackends_probes"))


def _usable(request: pytest.FixtureRequest, why: str) -> None:
    """Skip or fail a test whose device or backend is not usable."""
    if why:
        strict = run_of(request.config).settings.strict
        name = request.fixturename or ""
        stop(why, is_failure=bool({"all", name} & set(strict)))
