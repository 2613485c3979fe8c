"""The options of the plugin, on the command line and in the ini file, and what it keeps for one run."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from mlbackends.testing.machine import Machine

_DEPTHS = ("found", "loadable", "usable")
_HEADERS = ("auto", "always", "never")
#: The metavar and the help of each option that may be repeated.
_REPEATABLE = {
    "device": (
        "KIND",
        "Run the `device` fixture on this alone: cpu, cuda, cuda:1, rocm, xpu, mps. Repeatable.",
    ),
    "attention": ("NAME", "Run the `attention_backend` fixture with this alone. Repeatable."),
    "strict": (
        "NAME",
        (
            "Fail, not skip, where a requirement of this name is not met: all, a probe (cudnn), a"
            " dotted name (cpu.capability), device or attention_backend. Repeatable."
        ),
    ),
}
INI = {
    "backends_depth": (
        "string",
        "How thoroughly the machine is checked: found, loadable or usable.",
    ),
    "backends_header": ("string", "When the header lists facts: auto, always or never."),
    "backends_report": ("string", "A saved report or recorded machine to be judged by."),
    "backends_strict": ("args", "Requirements whose lack is a failure: all, or names."),
}
_SHORT = {"device": "--device", "attention": "--attention-backend"}
#: The key of xdist's workerinput that has the folder which the workers share.
SHARE = "backends_share"


def add(parser: pytest.Parser) -> None:
    """Add the options under the names that nobody else has."""
    group = parser.getgroup("backends", "hardware and ML backends")
    for name, (metavar, text) in _REPEATABLE.items():
        group.addoption(f"--backends-{name}", metavar=metavar, action="append", help=text)
    how_far = (
        "How thoroughly to check: found reads files only, loadable opens libraries, usable (the default)"
        " computes with them, in child processes."
    )
    group.addoption("--backends-depth", choices=_DEPTHS, help=how_far)
    saved = "Judge by a saved report or a recorded machine, not by this one."
    group.addoption("--backends-report", metavar="FILE|DIR", help=saved)
    for ini, (kind, doc) in INI.items():
        parser.addini(ini, doc, type=kind, default=[] if kind == "args" else "")  # type: ignore[arg-type]


def add_short_names(parser: pytest.Parser) -> None:
    """Add --device and --attention-backend, unless a conftest or another plugin has taken them."""
    group = parser.getgroup("backends", "hardware and ML backends")
    # Some releases of pytest find a clash when it is too late.
    groups = (*getattr(parser, "_groups", ()), getattr(parser, "_anonymous", None))
    options = [option for group in groups if group for option in group.options]
    defined = {name for option in options for name in option.names()}
    for name, short in _SHORT.items():
        if short not in defined:
            metavar, text = _REPEATABLE[name][0], f"The same as --backends-{name}."
            dest = f"backends_{name}"
            group.addoption(short, dest=dest, metavar=metavar, action="append", help=text)


def is_used(config: pytest.Config) -> bool:
    """Return whether any of our options is given."""
    names = (*_REPEATABLE, "depth", "report")
    is_set = any(config.getoption(f"backends_{name}", None) for name in names)
    return is_set or any(config.getini(name) for name in INI if name != "backends_header")


def header(config: pytest.Config) -> str:
    """Return when the facts are shown: of _HEADERS."""
    return _one_of("backends_header", config.getini("backends_header") or "auto", _HEADERS)


class Settings(NamedTuple):
    """The options of a run, and the machine that it is judged by."""

    machine: Machine
    devices: tuple[str, ...]
    attention: tuple[str, ...]
    strict: tuple[str, ...]


class Run:
    """One run of pytest.

    is_used: whether any test uses the plugin. is_shown: whether the report lists the facts. wrong:
    what is wrong with the markers of a test, by its name. own_share: the folder that workers share.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.is_used = False
        self.is_shown = False
        self.wrong: dict[str, str] = {}
        self.own_share = ""

    @cached_property
    def settings(self) -> Settings:
        """The options, read when they are first wanted. Raises UsageError, with what would be right."""
        from mlbackends.base.errors import MlBackendsError
        from mlbackends.model.records import Presence
        from mlbackends.testing import devices
        from mlbackends.testing.machine import CURRENT, Machine
        from mlbackends.testing.requirements import check_strict, sentence

        config = self.config
        depth = config.getoption("backends_depth") or config.getini("backends_depth") or "usable"
        subject = config.getoption("backends_report") or ""
        if subject:
            subject = os.path.join(config.invocation_params.dir, subject)
        elif config.getini("backends_report"):
            subject = os.path.join(config.rootpath, config.getini("backends_report"))
        share = getattr(config, "workerinput", {}).get(SHARE, "")
        machine = Machine(subject, Presence(_one_of("backends_depth", depth, _DEPTHS)), share)
        names: dict[str, tuple[str, ...]] = {}
        for name in _REPEATABLE:  # and parted by commas
            texts = config.getoption(f"backends_{name}") or ()
            words = [word.strip() for text in texts for word in text.split(",")]
            names[name] = tuple(dict.fromkeys(filter(None, words)))
        names["strict"] += tuple(config.getini("backends_strict"))
        checks = [("--device", "device", devices.check_name)]
        checks += [("--backends-strict", "strict", check_strict)]
        try:
            if names["attention"]:
                from mlbackends.testing.attention import check_name

                checks += [("--attention-backend", "attention", check_name)]
            for option, name, check in checks:
                for word in names[name]:
                    try:
                        check(word)
                    except MlBackendsError as error:
                        raise MlBackendsError(f"{option} {word}: {error}", error.hint) from None
            if subject:
                machine.report(())
        except MlBackendsError as error:
            raise pytest.UsageError(sentence(error)) from None
        CURRENT.append(machine)
        return Settings(machine, names["device"], names["attention"], names["strict"])

    def end(self) -> None:
        """Leave nothing behind."""
        if "settings" in vars(self):
            from mlbackends.testing.machine import CURRENT

            CURRENT.remove(self.settings.machine)
        if self.own_share:
            import shutil

            shutil.rmtree(self.own_share, ignore_errors=True)


RUN = pytest.StashKey[Run]()


def _one_of(name: str, word: str, words: tuple[str, ...]) -> str:
    if word not in words:
        raise pytest.UsageError(f"{name} is {word!r}; it can be {', '.join(words)}")
    return word
