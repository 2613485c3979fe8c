"""What the plugin is told: on the command line and in the ini file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlbackends.testing.machine import Machine

_DEPTHS = ("found", "loadable", "usable")
_HEADERS = ("auto", "always", "never")
INI = {
    "backends_depth": ("string", "How far the machine is looked at: found, loadable or usable."),
    "backends_header": ("string", "When facts stand in the header: auto, always or never."),
    "backends_report": ("string", "A saved report or recorded machine to be judged by."),
    "backends_strict": ("args", "Requirements whose lack is a failure: all, or names."),
}
_SHORT = {
    "--backends-device": "--device",
    "--backends-attention": "--attention-backend",
}


class Settings(NamedTuple):
    """What the run was told, and the machine that it is judged by."""

    machine: Machine
    devices: tuple[str, ...]
    attention: tuple[str, ...]
    strict: tuple[str, ...]


def add(parser: pytest.Parser) -> None:
    """Add the options under the names that nobody else has."""
    group = parser.getgroup("backends", "hardware and ML backends")
    group.addoption(
        "--backends-device",
        metavar="KIND",
        action="append",
        help="Run the `device` fixture on this alone: cpu, cuda, cuda:1, rocm, xpu, mps. Repeatable.",
    )
    group.addoption(
        "--backends-attention",
        metavar="NAME",
        action="append",
        help="Run the `attention_backend` fixture with this alone. Repeatable.",
    )
    group.addoption(
        "--backends-strict",
        metavar="NAME",
        action="append",
        help="Fail, not skip, where a requirement of this name is not met: all, a probe (cudnn), a"
        " dotted name (cpu.capability), device or attention_backend. Repeatable.",
    )
    group.addoption(
        "--backends-depth",
        choices=_DEPTHS,
        help="How far to look: found reads files only, loadable opens libraries, usable (the"
        " default) computes with them, in child processes.",
    )
    group.addoption(
        "--backends-report",
        metavar="FILE|DIR",
        help="Judge by a saved report or a recorded machine, not by this one.",
    )
    for name, (kind, doc) in INI.items():
        parser.addini(name, doc, type=kind, default=[] if kind == "args" else "")  # type: ignore[arg-type]


def add_short_names(parser: pytest.Parser) -> None:
    """Add --device and --attention-backend, unless a conftest or another plugin has taken them."""
    group = parser.getgroup("backends", "hardware and ML backends")
    taken = _taken(parser)
    for long, short in _SHORT.items():
        if short not in taken:
            dest = long.removeprefix("--").replace("-", "_")
            said = f"The same as {long}."
            group.addoption(short, dest=dest, metavar="NAME", action="append", help=said)


def _taken(parser: pytest.Parser) -> set[str]:
    """Return the options that there are; some releases of pytest find a clash when it is too late."""
    groups = (*getattr(parser, "_groups", ()), getattr(parser, "_anonymous", None))
    options = (option for group in groups if group for option in group.options)
    return {name for option in options for name in option.names()}


def is_told_anything(config: pytest.Config) -> bool:
    """Tell whether the run was told anything of ours."""
    names = ("device", "attention", "strict", "depth", "report")
    given = any(config.getoption(f"backends_{name}", None) for name in names)
    return given or any(config.getini(name) for name in INI if name != "backends_header")


def header(config: pytest.Config) -> str:
    """Return when the facts are shown."""
    said = str(config.getini("backends_header") or "auto")
    return _one_of("backends_header", said, _HEADERS)


def settings(config: pytest.Config, share: str) -> Settings:
    """Return what the run was told. Raises UsageError, with what would be right."""
    from mlbackends.model.errors import MlBackendsError
    from mlbackends.model.records import Presence
    from mlbackends.testing import devices
    from mlbackends.testing.machine import Machine
    from mlbackends.testing.requiring import check_strict, sentence

    depth = config.getoption("backends_depth") or config.getini("backends_depth") or "usable"
    machine = Machine(_subject(config), Presence(_one_of("backends_depth", depth, _DEPTHS)), share)
    strict = (*_listed(config.getoption("backends_strict")), *config.getini("backends_strict"))
    asked = _listed(config.getoption("backends_device"))
    attention = _listed(config.getoption("backends_attention"))
    try:
        _check("--device", asked, devices.check_name)
        _check("--backends-strict", strict, check_strict)
        if attention:
            from mlbackends.testing.attention import check_name

            _check("--attention-backend", attention, check_name)
        if machine.subject:
            machine.report(())
    except MlBackendsError as error:
        raise pytest.UsageError(sentence(error)) from None
    return Settings(machine, asked, attention, strict)


def _check(option: str, names: tuple[str, ...], check: Callable[[str], None]) -> None:
    from mlbackends.model.errors import MlBackendsError

    for name in names:
        try:
            check(name)
        except MlBackendsError as error:
            raise MlBackendsError(f"{option} {name}: {error}", error.hint) from None


def _subject(config: pytest.Config) -> str:
    """Return the absolute path of what the run is judged by, "" for the live machine."""
    if given := config.getoption("backends_report"):
        return os.path.join(config.invocation_params.dir, given)
    said = config.getini("backends_report")
    return os.path.join(config.rootpath, said) if said else ""


def _listed(given: list[str] | None) -> tuple[str, ...]:
    """Return the words of a repeated option; commas part them too."""
    words = [word.strip() for text in given or () for word in text.split(",")]
    return tuple(dict.fromkeys(word for word in words if word))


def _one_of(name: str, said: str, known: tuple[str, ...]) -> str:
    if said not in known:
        raise pytest.UsageError(f"{name} is {said!r}; it can be {', '.join(known)}")
    return said
