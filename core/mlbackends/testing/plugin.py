"""The plugin for pytest: markers, fixtures, options and the header. `-p no:mlbackends` turns it off.

Every run of pytest where mlbackends is installed loads this file, so it imports nothing of ours that a
run does not use; nothing is looked at before a marker, a fixture or an option asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from mlbackends.testing import options, parametrizing
from mlbackends.testing.fixtures import attention_backend, backends_report, device, tolerance
from mlbackends.testing.run import RUN, SHARE, Run, run_of, stop

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["attention_backend", "backends_report", "device", "tolerance"]  # pytest finds them here

REQUIRES = "requires_backend"
_USED = "backends_used"
_MARKERS = (
    (
        f"{REQUIRES}(*requirements, reason='', strict=False): skip the test unless all are met, such"
        " as 'cudnn>=9.10'; strict: fail where that could not be told."
    ),
    "devices(*kinds): run the `device` fixture on these alone: cpu, cuda, rocm, xpu, mps.",
    "attention_backends(*names): run the `attention_backend` fixture with these alone.",
)


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
    run = config.stash[RUN] = Run(config)
    options.header(config)
    if options.is_told_anything(config):
        run.settings  # noqa: B018  reading it is the check


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove what workers shared."""
    run = config.stash.get(RUN, None)
    if run is not None:
        run.end()


# ---- collecting --------------------------------------------------------------------------------


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test on every device and backend, unless somebody else gives it values."""
    on_device = parametrizing.is_wanted(metafunc, parametrizing.DEVICE)
    by_attention = parametrizing.is_wanted(metafunc, parametrizing.ATTENTION)
    if not (on_device or by_attention):
        return
    run = run_of(metafunc.config)
    run.is_used = True
    parametrizing.parametrize(metafunc, run.settings, device=on_device, attention=by_attention)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse markers that say nothing sensible: a slip of the pen must not become a skip."""
    run = run_of(config)
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
    run = run_of(item.config)
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
            stop(found.why, is_failure=found.is_failure)


# ---- reporting ---------------------------------------------------------------------------------


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what machine it is, where the run was told to or uses an option of ours."""
    run = run_of(config)
    when = options.header(config)
    if when == "never" or (when == "auto" and not options.is_told_anything(config)):
        return []
    return _shown(run)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Say it behind the count of tests, where only they tell that the plugin is used."""
    run = run_of(config)
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
    run = run_of(session.config)
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
    """Give workers a folder, so that one survey serves all of them; the first to survey makes it."""
    if not getattr(node.gateway.spec, "popen", False):  # a worker elsewhere asks its own machine
        return
    run = run_of(node.config)
    if not run.own_share:
        import tempfile
        import uuid

        run.own_share = f"{tempfile.gettempdir()}/mlbackends-{uuid.uuid4().hex}"
    node.workerinput[SHARE] = run.own_share


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Learn whether a worker had to do with us."""
    if getattr(node, "workeroutput", {}).get(_USED):
        run_of(node.config).is_used = True
