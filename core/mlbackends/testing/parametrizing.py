"""Runs a test that asks for `device` or `attention_backend` once for each that is usable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from mlbackends.testing.options import Settings

DEVICE, ATTENTION = "device", "attention_backend"
_HOME = "mlbackends.testing.fixtures"
MARKS = {DEVICE: "devices", ATTENTION: "attention_backends"}


def is_wanted(metafunc: pytest.Metafunc, name: str) -> bool:
    """Tell whether a test asks for the fixture of this plugin, and gets no values from elsewhere.

    A fixture of the same name that a conftest has, or values by parametrize, come before ours.
    """
    if name not in metafunc.fixturenames:
        return False
    if any(name in call.params for call in getattr(metafunc, "_calls", ())):
        return False
    for definition in reversed(getattr(metafunc, "_arg2fixturedefs", {}).get(name, ())):
        if getattr(definition.func, "__module__", "") == _HOME:
            return True
        if name not in definition.argnames:  # it does not build upon the one that it hides
            return False
    return False


def parametrize(
    metafunc: pytest.Metafunc, told: Settings, *, device: bool, attention: bool
) -> None:
    """Give a test the devices, the backends, or the pairs of them that can be used together."""
    from mlbackends.testing import devices

    found = devices.choices(
        told.machine, told.devices, marked(metafunc.definition, MARKS[DEVICE], devices.PROBES)
    )
    if not attention:
        names = [choice.name for choice in found]
        metafunc.parametrize(DEVICE, found, indirect=True, ids=names, scope="session")
        return
    from mlbackends.testing import attention as backends

    limit = marked(metafunc.definition, MARKS[ATTENTION], backends.names())
    usable = [choice.name for choice in found if not choice.why]
    pairs = backends.choices(told.machine, usable, told.attention, limit) if usable else []
    pairs += [
        backends.AttentionChoice((limit or told.attention or ("none",))[0], each.name, each.why)
        for each in found
        if each.why
    ]
    if not device:
        ids = [pair.id for pair in pairs]
        metafunc.parametrize(ATTENTION, pairs, indirect=True, ids=ids, scope="session")
        return
    by_name = {choice.name: choice for choice in found}
    metafunc.parametrize(
        (DEVICE, ATTENTION),
        [(by_name[pair.device], pair) for pair in pairs],
        indirect=True,
        ids=[f"{pair.device}-{pair.name}" for pair in pairs],
        scope="session",
    )


def marked(node: pytest.Item, mark: str, known: Any) -> tuple[str, ...] | None:
    """Return the names in a test's marker, None without one; wrong ones are told by `names_in`."""
    found = node.get_closest_marker(mark)
    if found is None:
        return None
    return tuple(name for name in found.args if _kind(name) in known)


def _kind(name: object) -> str:
    return name.partition(":")[0] if isinstance(name, str) else ""
