"""What the files in kernels/ declare, and what other distributions add to them."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Protocol

import pytest

from mlbackends.python_native import dsls, filters, overrides
from mlbackends.python_native.overrides import DISPATCH_KEYS, NOT_OVERRIDABLE, every_node, nodes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEAD = "from mlbackends.python_native.overrides import Override\n"


class Added(Protocol):
    def __call__(self, registry: str, name: str, source: str) -> None: ...


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Added]:
    """Install a distribution that adds a file of this source to a registry."""
    monkeypatch.syspath_prepend(tmp_path)
    made = []

    def add(registry: str, name: str, source: str) -> None:
        (tmp_path / f"added_{name}.py").write_text(HEAD + source)
        info = tmp_path / f"added_{name}-1.0.dist-info"
        info.mkdir()
        (info / "entry_points.txt").write_text(f"[mlbackends.{registry}]\n{name} = added_{name}\n")
        made.append(f"added_{name}")

    yield add
    for name in made:
        sys.modules.pop(name, None)


FROB = """
OVERRIDES = (
    Override(dsl_name="{dsl}", op_symbol="frobnicate", dispatch_key="CPU",
             cond_fn=lambda number: number < 10, impl_fn=lambda number: "small"),
    Override(dsl_name="{dsl}", op_symbol="frobnicate", dispatch_key="CPU", impl_fn=lambda number: "large"),
)
"""


def test_what_a_file_declares_is_called(added: Added) -> None:
    added("kernels.operations", "frob", FROB.format(dsl="native"))

    assert overrides.call("frobnicate", "CPU", lambda _number: "native", 3) == "small"
    assert overrides.call("frobnicate", "CPU", lambda _number: "native", 30) == "large"
    assert "frobnicate" in overrides.get_dsl_operations("native")


def test_it_is_registered_once_however_many_ask(added: Added) -> None:
    added("kernels.operations", "frob", FROB.format(dsl="native"))

    threads = [threading.Thread(target=overrides.register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(nodes("frobnicate", "CPU")) == 2


def test_it_counts_where_its_dsl_can_run(added: Added, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dsls, "is_available", lambda name: name == "triton")
    added("kernels.operations", "frob", FROB.format(dsl="triton"))

    assert "frobnicate" in overrides.get_dsl_operations("triton")


def test_the_override_of_a_dsl_that_cannot_run_is_left_out_and_its_operation_is_known(
    added: Added, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dsls, "is_available", lambda _name: True)
    monkeypatch.setenv("TORCH_DISABLE_NATIVE_JIT", "1")
    added("kernels.operations", "frob", FROB.format(dsl="triton"))

    assert "frobnicate" not in overrides.get_dsl_operations("triton")
    assert "frobnicate" in overrides.valid_names(filters.OPERATION)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("OVERRIDES = 3", "OVERRIDES is not a tuple of Override"),
        ("OVERRIDES = ('bmm',)", "OVERRIDES is not a tuple of Override"),
        (FROB.format(dsl="trton"), "there is no DSL named 'trton'"),
        (FROB.format(dsl="native").replace("CPU", "Meta"), "'Meta'"),
        (FROB.format(dsl="native").replace("CPU", "cpu"), "no dispatch key named 'cpu'"),
    ],
    ids=["no tuple", "no override", "no dsl", "not overridable", "no key"],
)
def test_a_senseless_declaration_is_warned_of_and_left_out(
    added: Added, declared: str, said: str
) -> None:
    added("kernels.operations", "frob", declared)

    with pytest.warns(UserWarning, match=said) as caught:
        overrides.register()

    assert all(str(each.message).startswith("added_frob: ") for each in caught)
    assert nodes("frobnicate", "CPU") == ()


def test_a_file_that_cannot_be_imported_offers_nothing(added: Added) -> None:
    added("kernels.operations", "frob", "import no_such_module\n" + FROB.format(dsl="native"))

    overrides.register()

    assert nodes("frobnicate", "CPU") == ()


def test_our_own_files_declare_what_makes_sense(recwarn: pytest.WarningsRecorder) -> None:
    overrides.register()

    assert not recwarn
    for entry, override in overrides.declared_overrides():
        assert override.dispatch_key in set(DISPATCH_KEYS) - NOT_OVERRIDABLE, entry
        assert override.dsl_name in overrides.valid_names(filters.DSL), entry
        assert callable(override.impl_fn), entry
    assert {node.dsl_name for node in every_node()} <= set(overrides.valid_names(filters.DSL))
