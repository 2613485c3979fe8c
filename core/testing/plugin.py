"""The plugin for pytest: markers, fixtures, options and the header. `-p no:mlbackends` turns it off.

Every run of pytest where mlbackends is installed loads this file, so it imports nothing of ours that a
run does not use; nothing is looked at before a marker, a fixture or an option asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.testing import options, parametrizing

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from mlbackends.model.records import Report
    from mlbackends.testing.attention import UsableAttention
    from mlbackends.testing.options import Settings
    from mlbackends.testing.tolerances import Tolerance

REQUIRES = "requires_backend"
_SHARE = "backends_share"
_USED = "backends_used"
_MARKERS = (
    (
        f"{REQUIRES}(*requirements, reason='', strict=False): skip the test unless all are met, such"
        " as 'cudnn>=9.10'; strict: fail where that could not be told."
    ),
    "devices(*kinds): run the `device` fixture on these alone: cpu, cuda, rocm, xpu, mps.",
    "attention_backends(*names): run the `attention_backend` fixture with these alone.",
)


class Run:
    """What the plugin keeps for one run of pytest.

    is_used: whether any test has to do with us. is_shown: whether the facts stand in the report. wrong:
    what is wrong with the markers of a test, by its name.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.is_used = False
        self.is_shown = False
        self.wrong: dict[str, str] = {}
        self.share = getattr(config, "workerinput", {}).get(_SHARE, "")
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


_RUN = pytest.StashKey[Run]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what has a name of its own."""
    options.add(parser)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(parser: pytest.Parser) -> Generator[None, Any, Any]:
    """Add the short names when every conftest has had the chance to take them."""
    result = yield
    options.add_short_names(parser)
    return result


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers; a run that was told something wrong ends here."""
    for line in _MARKERS:
        config.addinivalue_line("markers", line)
    run = config.stash[_RUN] = Run(config)
    options.header(config)
    if options.is_told_anything(config):
        run.settings  # noqa: B018  reading it is the check


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what workers shared."""
    run = config.stash.get(_RUN, None)
    if run is not None:
        run.end()


# ---- collecting --------------------------------------------------------------------------------


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on every device and backend, unless somebody else gives it values."""
    device = parametrizing.is_wanted(metafunc, parametrizing.DEVICE, __name__)
    attention = parametrizing.is_wanted(metafunc, parametrizing.ATTENTION, __name__)
    if not (device or attention):
        return
    run = metafunc.config.stash[_RUN]
    run.is_used = True
    parametrizing.parametrize(metafunc, run.settings, device=device, attention=attention)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse markers that say nothing sensible: a slip of the pen must not become a skip."""
    run = config.stash[_RUN]
    for item in items:
        found = [*item.iter_markers(REQUIRES)]
        run.is_used = run.is_used or bool(found)
        limits = map(item.get_closest_marker, parametrizing.MARKS.values())
        found += [mark for mark in limits if mark is not None]
        if why := _wrong(found):
            run.wrong[item.nodeid] = why
    # A worker that ended here would look like one that crashed; its tests fail instead.
    if run.wrong and not hasattr(config, "workerinput"):
        raise pytest.UsageError(*(f"{name}: {why}" for name, why in run.wrong.items()))


def _wrong(marks: list[pytest.Mark]) -> str:
    """Return what is wrong with the first wrong one of our markers, "" if nothing is."""
    if not marks:
        return ""
    from mlbackends.model.errors import MlBackendsError
    from mlbackends.testing.requiring import check_names, demand, sentence

    try:
        for mark in marks:
            if mark.name == REQUIRES:
                demand(mark.args, dict(mark.kwargs))
            else:
                check_names(mark.name, mark.args, dict(mark.kwargs))
    except MlBackendsError as error:
        return sentence(error)
    return ""


# ---- running -----------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip or fail what requires more than is here, before its fixtures are made."""
    run = item.config.stash[_RUN]
    if item.nodeid in run.wrong:
        pytest.fail(run.wrong[item.nodeid], pytrace=False)
    marks = list(item.iter_markers(REQUIRES))
    if not marks:
        return
    from mlbackends.model.errors import MlBackendsError
    from mlbackends.testing.requiring import demand, sentence, unmet_here

    for mark in marks:
        try:
            asked = demand(mark.args, dict(mark.kwargs))
            found = unmet_here(run.settings.machine, asked, run.settings.strict)
        except MlBackendsError as error:
            pytest.fail(sentence(error), pytrace=False)
        if found:
            _stop(found.why, is_failure=found.is_failure)


def _stop(why: str, *, is_failure: bool) -> None:
    if is_failure:
        pytest.fail(why, pytrace=False)
    # The place of the test, as pytest's own marks tell it; all skips would stand in this file else.
    raise pytest.skip.Exception(why, _use_item_location=True)


def _usable(request: pytest.FixtureRequest, why: str) -> None:
    """Skip or fail a test whose device or backend is not usable."""
    if why:
        strict = request.config.stash[_RUN].settings.strict
        name = request.fixturename or ""
        _stop(why, is_failure=bool({"all", name} & set(strict)))


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> str:
    """Run the test once on each kind of device that is usable, such as "cpu" and "cuda"."""
    from mlbackends.testing import devices

    settings = request.config.stash[_RUN].settings
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
    from mlbackends.testing import attention

    settings = request.config.stash[_RUN].settings
    given = getattr(request, "param", None)
    if not isinstance(given, attention.AttentionChoice):
        limit = (given,) if isinstance(given, str) else None
        usable = attention.usable_devices(settings.machine)
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

    machine = request.config.stash[_RUN].settings.machine
    return machine.report(() if machine.subject else registry.names("probes"))


# ---- reporting ---------------------------------------------------------------------------------


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what machine it is, where the run was told to or uses an option of ours."""
    run = config.stash[_RUN]
    when = options.header(config)
    if when == "never" or (when == "auto" and not options.is_told_anything(config)):
        return []
    return _shown(run)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Say it behind the count of tests, where only they tell that the plugin is used."""
    run = config.stash[_RUN]
    if run.is_shown or not run.is_used or options.header(config) == "never":
        return []
    is_quiet = config.get_verbosity() < 0 or config.getoption("no_header", default=False)
    return [] if is_quiet else _shown(run)


def _shown(run: Run) -> list[str]:
    from mlbackends.testing.facts import facts, lines

    run.is_shown = True
    return lines(facts(run.settings.machine))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave the facts in JUnit's file; tell the process that started us whether we were used."""
    run = session.config.stash[_RUN]
    told = getattr(session.config, "workeroutput", None)
    if told is not None:
        told[_USED] = run.is_used
        return
    if not (run.is_used or run.is_shown):
        return
    for plugin in session.config.pluginmanager.get_plugins():
        if hasattr(plugin, "add_global_property"):  # the writer of --junit-xml
            from mlbackends.testing.facts import facts

            for name, value in facts(run.settings.machine).items():
                plugin.add_global_property(f"backends.{name}", value)


# ---- several processes: hooks of pytest-xdist --------------------------------------------------


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give workers a folder, so that one survey serves all of them."""
    run = node.config.stash[_RUN]
    if not run.own_share:
        import tempfile

        run.own_share = tempfile.mkdtemp(prefix="mlbackends-")
    node.workerinput[_SHARE] = run.own_share


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Learn whether a worker had to do with us."""
    if getattr(node, "workeroutput", {}).get(_USED):
        node.config.stash[_RUN].is_used = True
