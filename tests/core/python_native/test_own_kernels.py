"""What the files in kernels/ declare, and what other distributions add to them."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Protocol

import pytest

from mlbackends import python_native
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device
from mlbackends.python_native import calls, dsl_registry, environment, known_names, own_kernels
from mlbackends.python_native.dispatch_keys import DISPATCH_KEYS, NOT_OVERRIDABLE
from mlbackends.python_native.override_graph import every_node, nodes, register_op_override
from mlbackends.sdpa import dispatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

HEAD = "from mlbackends.python_native.declarations import Override\n"


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


class UsableDsl:
    """A DSL that is there, and registers what it is given under its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def runtime_available(self) -> bool:
        return True

    def runtime_version(self) -> None:
        return None

    def register_op_override(self, *args: Any, **kwargs: Any) -> None:
        calls.get_dsl_operations(self.name)  # asks back, as any DSL may
        register_op_override(self.name, *args, **kwargs)

    def deregister_op_overrides(self) -> None: ...


FROB = """
OVERRIDES = (
    Override(dsl="{dsl}", op_symbol="frobnicate", dispatch_key="CPU",
             condition=lambda number: number < 10, run=lambda number: "small"),
    Override(dsl="{dsl}", op_symbol="frobnicate", dispatch_key="CPU", run=lambda number: "large"),
)
"""


def test_what_a_file_declares_is_called(added: Added) -> None:
    added("kernels.operations", "frob", FROB.format(dsl="native"))

    assert calls.call("frobnicate", "CPU", lambda _number: "native", 3) == "small"
    assert calls.call("frobnicate", "CPU", lambda _number: "native", 30) == "large"
    assert "frobnicate" in calls.get_dsl_operations("native")


def test_it_is_registered_once_however_many_ask(added: Added) -> None:
    added("kernels.operations", "frob", FROB.format(dsl="native"))

    threads = [threading.Thread(target=own_kernels.register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(nodes("frobnicate", "CPU")) == 2


def test_it_goes_through_its_dsl(added: Added) -> None:
    added("kernels.operations", "frob", FROB.format(dsl="mine"))
    dsl_registry.register_dsl("mine", UsableDsl("mine"))

    assert calls.get_dsl_operations("mine") == ["frobnicate"]


def test_the_override_of_a_dsl_that_cannot_run_is_left_out_and_its_operation_is_known(
    added: Added, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(environment.DISABLE_JIT, "1")
    added("kernels.operations", "frob", FROB.format(dsl="triton"))

    assert calls.get_dsl_operations("triton") == []
    assert "frobnicate" in known_names.operations()


FROBTENTION = """
from mlbackends.sdpa.backend import AttentionBackend
from mlbackends.sdpa.sdp_backend import SDPBackend

class Frobtention(AttentionBackend):
    name, answers_to, rank = "frobtention", SDPBackend.FLASH_ATTENTION, 1000
    dsl = "{dsl}"
"""


def test_an_attention_backend_of_a_dsl_that_is_there_is_one_of_its_operations(
    added: Added,
) -> None:
    added("kernels", "frobtention", FROBTENTION.format(dsl="mine"))

    assert calls.get_dsl_operations("mine") == []
    dsl_registry.register_dsl("mine", UsableDsl("mine"))
    assert calls.get_dsl_operations("mine") == ["scaled_dot_product_attention"]
    assert "mine" in known_names.dsls()


def test_an_attention_backend_without_a_dsl_belongs_to_none(added: Added) -> None:
    before = own_kernels.attention_dsls()
    dispatch.backends.cache_clear()
    added("kernels", "frobtention", FROBTENTION.format(dsl=""))

    assert own_kernels.attention_dsls() == before


def test_switching_triton_off_takes_its_attention_out_of_dispatch(added: Added) -> None:
    added("kernels", "frobtention", FROBTENTION.format(dsl="triton"))
    tensor = TensorSpec((2, 4, 16, 64), "float16")
    device = Device("cuda", 0, capability="9.0")
    problem = AttentionProblem(query=tensor, key=tensor, value=tensor, device=device)

    def said() -> tuple[str, ...]:
        verdicts = dispatch.choose(problem, here=False).verdicts
        (verdict,) = (each for each in verdicts if each.backend == "frobtention")
        return tuple(reason.message for reason in verdict.reasons)

    assert said() == ()
    with python_native.triton.disabled():
        assert said() == (
            "frobtention is switched off: the DSL triton is switched off by python_native.triton",
        )
    with python_native.operations_disabled("scaled_dot_product_attention"):
        assert "operation scaled_dot_product_attention" in said()[0]
    python_native.disable_dispatch_keys("CUDA")
    assert "dispatch key CUDA" in said()[0]
    python_native.enable_dispatch_keys("CUDA")
    assert said() == ()


def test_the_dispatchers_operation_is_the_one_that_is_listed() -> None:
    assert own_kernels.ATTENTION == dispatch.OPERATION


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ("OVERRIDES = 3", "OVERRIDES must be a tuple, got int"),
        ("OVERRIDES = ('bmm',)", "OVERRIDES holds a str, not an Override"),
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
        own_kernels.register()

    assert all(str(each.message).startswith("added_frob: ") for each in caught)
    assert nodes("frobnicate", "CPU") == ()


def test_a_file_that_cannot_be_imported_offers_nothing(added: Added) -> None:
    added("kernels.operations", "frob", "import no_such_module\n" + FROB.format(dsl="native"))

    own_kernels.register()

    assert nodes("frobnicate", "CPU") == ()


def test_our_own_files_declare_what_makes_sense(recwarn: pytest.WarningsRecorder) -> None:
    own_kernels.register()

    assert not recwarn
    for entry, override in own_kernels.declared_overrides():
        assert override.dispatch_key in set(DISPATCH_KEYS) - NOT_OVERRIDABLE, entry
        assert override.dsl in known_names.dsls(), entry
        assert callable(override.run), entry
    assert {node.dsl_name for node in every_node()} <= set(known_names.dsls())
