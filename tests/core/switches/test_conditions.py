"""Defaults and refusals that depend on what is installed here."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from mlbackends import opt_einsum, quantized, xnnpack
from mlbackends.switches import availability, conditions, store
from mlbackends.switches.table import PROBED, SWITCHES

pytestmark = pytest.mark.usefixtures("fresh_switches")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let only the named libraries and packages be here."""

    def install(*names: str) -> None:
        for question in ("is_available", "is_found", "is_importable", "opens"):
            monkeypatch.setattr(availability, question, lambda name: name in names)

    cached: Any = opt_einsum.is_available
    cached.cache_clear()
    yield install
    cached.cache_clear()


def test_every_probed_default_has_an_answer(here: Any) -> None:
    here()
    for name, flag in SWITCHES.items():
        if flag.default is PROBED:
            conditions.default(name)
    with pytest.raises(LookupError):
        conditions.default("cudnn.enabled")


@pytest.mark.parametrize(
    ("libraries", "engines", "engine"),
    [
        ((), [], "none"),
        (("qnnpack",), ["qnnpack"], "qnnpack"),
        (("onednn",), ["onednn"], "onednn"),
        (("onednn", "qnnpack"), ["qnnpack", "onednn"], "qnnpack"),
        (("fbgemm",), ["fbgemm"], "fbgemm"),
        (("fbgemm", "onednn", "qnnpack"), ["qnnpack", "onednn", "x86", "fbgemm"], "x86"),
    ],
)
def test_the_engines_are_those_that_are_here(
    libraries: tuple[str, ...], engines: list[str], engine: str, here: Any
) -> None:
    here(*libraries)

    assert quantized.supported_engines == engines
    assert quantized.engine == engine


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("none", "NoQEngine is not supported"),
        ("", "NoQEngine is not supported"),
        (None, "NoQEngine is not supported"),
        ("FBGEMM", "FBGEMM is not a valid value for quantized engine; did you mean 'fbgemm'"),
        (3, "3 is not a valid value"),
        ("x86", "quantized engine x86 is not supported; supported: qnnpack"),
    ],
)
def test_an_engine_that_is_not_here_is_refused(engine: Any, said: str, here: Any) -> None:
    here("qnnpack")

    with pytest.raises(RuntimeError, match=said):
        quantized.engine = engine
    quantized.engine = "qnnpack"
    assert (quantized.engine, store.origin("quantized.engine")) == ("qnnpack", "set")


@pytest.mark.parametrize("place", [quantized, xnnpack], ids=["quantized", "xnnpack"])
def test_an_answer_is_not_assigned(place: Any, here: Any) -> None:
    here("xnnpack")
    name = "supported_engines" if place is quantized else "enabled"

    with pytest.raises(RuntimeError, match="Assignment not supported"):
        setattr(place, name, True)
    assert xnnpack.enabled is True


def test_without_opt_einsum_nothing_can_be_enabled(here: Any) -> None:
    here()

    assert (opt_einsum.is_available(), opt_einsum.get_opt_einsum()) == (False, None)
    assert (opt_einsum.enabled, opt_einsum.strategy) == (False, None)
    with pytest.raises(ValueError, match="Install opt-einsum"):
        opt_einsum.enabled = True
    for values in ((True,), (None, "auto")):
        with pytest.raises(ValueError, match="opt_einsum is not"):
            opt_einsum.set_flags(*values)
    assert opt_einsum.set_flags(False) == (False, None)
    with opt_einsum.flags():
        assert opt_einsum.enabled is False


def test_with_opt_einsum_a_strategy_needs_it_enabled(here: Any) -> None:
    here("opt_einsum")

    assert (opt_einsum.enabled, opt_einsum.strategy) == (True, "auto")
    assert opt_einsum.set_flags(False) == (True, "auto")
    for call in (
        lambda: opt_einsum.set_flags(None, "greedy"),
        lambda: opt_einsum.set_flags(False, "greedy"),
        lambda: opt_einsum.flags(strategy="greedy").__enter__(),
    ):
        with pytest.raises(ValueError, match="is not enabled, so a strategy has no meaning"):
            call()
    with opt_einsum.flags(True, "greedy"):
        assert (opt_einsum.enabled, opt_einsum.strategy) == (True, "greedy")
    assert (opt_einsum.enabled, opt_einsum.strategy) == (False, "auto")
    opt_einsum.enabled = None  # type: ignore[assignment]
    assert opt_einsum.enabled is True


def test_the_package_is_imported_when_it_is_asked_for(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    here("opt_einsum")
    package = object()
    monkeypatch.setitem(sys.modules, "opt_einsum", package)

    assert opt_einsum.get_opt_einsum() is package
