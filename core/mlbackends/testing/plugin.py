"""The plugin for pytest: markers, fixtures, options and the header. `-p no:mlbackends` turns it off.

Every run of pytest where mlbackends is installed loads this file, so it imports nothing of ours that a
run does not use; nothing is looked at before a marker, a fixture or an option asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from mlbackends.testing import options
from mlbackends.testing.options import RUN, SHARE, Run

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from mlbackends.model.records import Report
    from mlbackends.testing.attention import UsableAttention
    from mlbackends.testing.tolerances import Tolerance

REQUIRES, LOADABLE = "requires_backend", "requires_loadable"
_DEVICE, _ATTENTION = "device", "attention_backend"
#: The markers that limit our fixtures.
_LIMITS = {_DEVICE: "devices", _ATTENTION: "attention_backends"}
_USED = "backends_used"
_MARKERS = (
    (
        f"{REQUIRES}(*requirements, reason='', strict=False): skip the test unless all are met, such"
        " as 'cudnn>=9.10'; strict: fail where that could not be determined."
    ),
    f"{LOADABLE}(*packages): skip the test unless all of these packages load, by their files.",
    "devices(*kinds): run the `device` fixture on these alone: cpu, cuda, rocm, xpu, mps.",
    "attention_backends(*names): run the `attention_backend` fixture with these alone.",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, markers and fixtures."""
    options.add(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(parser: pytest.Parser) -> Generator[None, Any, Any]:
    """Add the short names when every conftest has had the chance to take them."""
    result = yield
    options.add_short_names(parser)
    return result


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers; a run with a wrong option ends here."""
    for line in _MARKERS:
        config.addinivalue_line("markers", line)
    run = config.stash[RUN] = Run(config)
    options.header(config)
    if options.is_used(config):
        run.settings  # noqa: B018  reading it is the check


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what workers shared."""
    run = config.stash.get(RUN, None)
    if run is not None:
        run.end()


# ---- fixtures ----------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Run the test once on each kind of device that is usable, such as "cpu" and "cuda"."""
    from mlbackends.testing import devices

    settings = request.config.stash[RUN].settings
    choice = getattr(request, "param", None)
    if choice is None:  # requested while the test runs, so that there is one value only
        choice = devices.choices(settings.machine, settings.devices, None)[0]
    if isinstance(choice, str):
        devices.check_name(choice)
        choice = devices.Choice(choice, devices.why_unusable(settings.machine, choice))
    _stop_if_unusable(request, choice.why)
    return str(choice.name)


@pytest.fixture(scope="session")
def attention_backend(request: pytest.FixtureRequest) -> UsableAttention:
    """Run the test once with each attention backend that is usable, on its device."""
    from mlbackends.testing import attention, devices

    settings = request.config.stash[RUN].settings
    choice = getattr(request, "param", None)
    if not isinstance(choice, attention.AttentionChoice):
        limit = (choice,) if isinstance(choice, str) else None
        found = devices.choices(settings.machine, settings.devices, None)
        choice = attention.choices(settings.machine, found, settings.attention, limit)[0]
    _stop_if_unusable(request, choice.why)
    return attention.usable(choice)


@pytest.fixture(scope="session")
def tolerance() -> Callable[..., Tolerance]:
    """Give the function mlbackends.testing.tolerance."""
    from mlbackends.testing.tolerances import tolerance as found

    return found


@pytest.fixture(scope="session")
def backends_report(request: pytest.FixtureRequest) -> Report:
    """Give the whole report of the machine, as far as --backends-depth goes."""
    from mlbackends.base import registry

    machine = request.config.stash[RUN].settings.machine
    return machine.report(() if machine.subject else registry.names(registry.PROBES))


def _stop_if_unusable(request: pytest.FixtureRequest, why: str) -> None:
    if why:
        strict = request.config.stash[RUN].settings.strict
        _stop(why, is_failure=bool({"all", request.fixturename or ""} & set(strict)))


def _stop(why: str, *, is_failure: bool) -> NoReturn:
    """Skip or fail a test before it begins."""
    if is_failure:
        pytest.fail(why, pytrace=False)
    # The place of the test, as for pytest's own marks; otherwise every skip would name this file.
    raise pytest.skip.Exception(why, _use_item_location=True)


# ---- collecting --------------------------------------------------------------------------------


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on every device and backend, or the pairs of them, unless somebody else gives it values."""
    has_device, has_attention = _is_ours(metafunc, _DEVICE), _is_ours(metafunc, _ATTENTION)
    if not (has_device or has_attention):
        return
    from mlbackends.testing import devices

    run = metafunc.config.stash[RUN]
    run.is_used = True
    settings = run.settings
    limit = _limit(metafunc, _DEVICE, tuple(devices.PROBES))
    found = devices.choices(settings.machine, settings.devices, limit)
    names: Any = _DEVICE
    values: list[Any] = list(found)
    ids = [choice.name for choice in found]
    if has_attention:
        from mlbackends.testing import attention

        limit = _limit(metafunc, _ATTENTION, attention.names())
        pairs = attention.choices(settings.machine, found, settings.attention, limit)
        names, values = _ATTENTION, list(pairs)
        ids = [f"{pair.name}-{pair.device}" for pair in pairs]
        if has_device:
            by_name = {choice.name: choice for choice in found}
            names = (_DEVICE, _ATTENTION)
            values = [(by_name[pair.device], pair) for pair in pairs]
            ids = [f"{pair.device}-{pair.name}" for pair in pairs]
    metafunc.parametrize(names, values, indirect=True, ids=ids, scope="session")


def _is_ours(metafunc: pytest.Metafunc, name: str) -> bool:
    """Return whether a test requests the fixture of this plugin, and gets no values from elsewhere.

    A fixture of the same name that a conftest has, or values by parametrize, come before ours.
    """
    if name not in metafunc.fixturenames:
        return False
    if any(name in call.params for call in getattr(metafunc, "_calls", ())):
        return False
    for definition in reversed(getattr(metafunc, "_arg2fixturedefs", {}).get(name, ())):
        if getattr(definition.func, "__module__", "") == __name__:
            return True
        if name not in definition.argnames:  # it does not build upon the one that it hides
            return False
    return False


def _limit(metafunc: pytest.Metafunc, fixture: str, names: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the names in the marker of a fixture, None without one; wrong ones are reported later."""
    mark = metafunc.definition.get_closest_marker(_LIMITS[fixture])
    if mark is None:
        return None
    return tuple(
        argument
        for argument in mark.args
        if isinstance(argument, str) and argument.partition(":")[0] in names
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse wrong markers: a slip of the pen must not become a skip."""
    run = config.stash[RUN]
    for item in items:
        marks = [*item.iter_markers(REQUIRES), *item.iter_markers(LOADABLE)]
        run.is_used = run.is_used or bool(marks)
        marks += [mark for mark in map(item.get_closest_marker, _LIMITS.values()) if mark]
        if not marks:
            continue
        from mlbackends.base.errors import MlBackendsError
        from mlbackends.testing.requirements import check_names, demand, sentence

        try:
            for mark in marks:
                if mark.name == REQUIRES:
                    demand(mark.args, dict(mark.kwargs))
                else:
                    check_names(mark.name, mark.args, dict(mark.kwargs))
        except MlBackendsError as error:
            run.wrong[item.nodeid] = sentence(error)
    # A worker that ended here would look like one that crashed; its tests fail instead.
    if run.wrong and not hasattr(config, "workerinput"):
        raise pytest.UsageError(*(f"{name}: {why}" for name, why in run.wrong.items()))


# ---- running -----------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip or fail what requires more than is here, before its fixtures are made."""
    run = item.config.stash[RUN]
    if item.nodeid in run.wrong:
        pytest.fail(run.wrong[item.nodeid], pytrace=False)
    for mark in item.iter_markers(LOADABLE):
        from mlbackends.testing.loadable import why_not_loadable

        for package in mark.args:
            if why := why_not_loadable(package):
                _stop(f"requires that {package} loads: {why}", is_failure="all" in run.settings.strict)
    marks = list(item.iter_markers(REQUIRES))
    if not marks:
        return
    from mlbackends.base.errors import MlBackendsError
    from mlbackends.testing.requirements import demand, sentence, unmet_on

    for mark in marks:
        try:
            needs = demand(mark.args, dict(mark.kwargs))
            found = unmet_on(run.settings.machine, needs, run.settings.strict)
        except MlBackendsError as error:
            pytest.fail(sentence(error), pytrace=False)
        if found:
            _stop(found.why, is_failure=found.is_failure)


# ---- reporting ---------------------------------------------------------------------------------


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Return the machine's facts, where that is configured or an option of ours is used."""
    when = options.header(config)
    is_shown = when == "always" or (when == "auto" and options.is_used(config))
    return _shown(config.stash[RUN]) if is_shown else []


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Return the facts that follow the count of tests, if only they show that the plugin is used."""
    run = config.stash[RUN]
    is_quiet = config.get_verbosity() < 0 or config.getoption("no_header", default=False)
    if run.is_shown or not run.is_used or is_quiet or options.header(config) == "never":
        return []
    return _shown(run)


def _shown(run: Run) -> list[str]:
    from mlbackends.testing.machine import fact_lines, facts

    run.is_shown = True
    return fact_lines(facts(run.settings.machine))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the facts into JUnit's file; report to the controlling process whether the plugin was used."""
    run = session.config.stash[RUN]
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_USED] = run.is_used
        return
    if not (run.is_used or run.is_shown):
        return
    for plugin in session.config.pluginmanager.get_plugins():
        if hasattr(plugin, "add_global_property"):  # the writer of --junit-xml
            from mlbackends.testing.machine import facts

            for name, value in facts(run.settings.machine).items():
                plugin.add_global_property(f"backends.{name}", value)


# ---- several processes: hooks of pytest-xdist --------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give workers a folder, so that one survey serves all of them; the first to survey makes it."""
    if not getattr(node.gateway.spec, "popen", False):  # a worker elsewhere asks its own machine
        return
    run = node.config.stash[RUN]
    if not run.own_share:
        import tempfile
        import uuid

        run.own_share = f"{tempfile.gettempdir()}/mlbackends-{uuid.uuid4().hex}"
    node.workerinput[SHARE] = run.own_share


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Learn whether a worker had to do with us."""
    if getattr(node, "workeroutput", {}).get(_USED):
        node.config.stash[RUN].is_used = True
