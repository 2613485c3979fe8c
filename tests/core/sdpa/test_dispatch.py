"""Which backend is chosen, and why not the others: order, switches, filters and missing parts."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

import mlbackends
from mlbackends.base.errors import NoBackend
from mlbackends.base.reasons import Reason
from mlbackends.model.problem import AttentionProblem, TensorSpec
from mlbackends.model.records import Device
from mlbackends.sdpa import dispatch
from mlbackends.sdpa.backend import OPTIONAL, AttentionBackend
from mlbackends.sdpa.constraints import Constraint, dtype_in, no_mask, on_device
from mlbackends.sdpa.dispatch import choose, no_backend
from mlbackends.sdpa.rules.environment import Environment
from mlbackends.sdpa.switches import PRIORITY_ORDER, SWITCHES, SDPBackend
from mlbackends.switches import store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MATH, FLASH = SDPBackend.MATH, SDPBackend.FLASH_ATTENTION
CUDNN = SDPBackend.CUDNN_ATTENTION
SPEC = TensorSpec((2, 4, 16, 64), "float16")
FEW = TensorSpec((2, 2, 16, 64), "float16")


class Flash(AttentionBackend):
    name, answers_to = "flash", FLASH
    constraints = (on_device("cpu", "cuda"), no_mask())


class Faster(AttentionBackend):
    name, answers_to = "faster", FLASH
    constraints = (dtype_in("bfloat16"), no_mask())


class Plain(AttentionBackend):
    name, answers_to = "plain", MATH
    takes = frozenset({"mask"})


class Bare(AttentionBackend):
    name, answers_to = "bare", MATH


class Cudnn(AttentionBackend):
    name, answers_to = "cudnn", CUDNN


class Unpacked(AttentionBackend):
    name, answers_to = "unpacked", FLASH

    def missing_parts(self) -> tuple[Reason, ...]:
        return (Reason("missing-part", "there is no compiler", "install one"),)


@pytest.fixture(autouse=True)
def switches_as_found() -> Iterator[None]:
    with store.restored(*SWITCHES.values(), PRIORITY_ORDER):
        yield


def problem(**changes: Any) -> AttentionProblem:
    return AttentionProblem(**{"query": SPEC, "key": SPEC, "value": SPEC, **changes})


def chosen(*among: type[AttentionBackend], **changes: Any) -> str:
    return choose(problem(**changes), among=[kind() for kind in among]).chosen


def test_the_first_kind_that_can_is_chosen_and_all_say_what_they_think() -> None:
    decision = choose(problem(mask=TensorSpec((16, 16), "bool")), among=[Plain(), Flash(), Faster()])

    assert decision.chosen == "plain"
    assert [(verdict.backend, verdict.answers_to) for verdict in decision.verdicts] == [
        ("faster", "FLASH_ATTENTION"),
        ("flash", "FLASH_ATTENTION"),
        ("plain", "MATH"),
    ]
    codes = [[reason.code for reason in verdict.reasons] for verdict in decision.verdicts]
    assert codes == [["wrong-dtype", "mask"], ["mask"], []]


def test_ours_are_asked_in_the_order_of_the_list_and_others_behind_by_name() -> None:
    names = ("zeta", "efficient_cuda", "alpha", "flash_cpu")
    backends = [type(name, (AttentionBackend,), {"name": name, "answers_to": FLASH})() for name in names]

    ordered = [backend.name for backend in dispatch.in_order(problem(), backends)]
    assert ordered == ["flash_cpu", "efficient_cuda", "alpha", "zeta"]
    assert {backend.name for backend in dispatch.backends()} >= set(dispatch.ORDER)


def test_silence_promises_the_plain_product_and_nothing_beside_it() -> None:
    bare = Bare()
    wide = TensorSpec((2, 4, 16, 32), "float16")

    for plain in ({"is_causal": True}, {"scale": 0.5}, {"value": wide}):
        assert not bare.unsupported_reasons(problem(**plain))
    for beside in ({"dropout": 0.5}, {"mask": TensorSpec((16, 16), "bool")}, {"logsumexp": True}):
        assert bare.unsupported_reasons(problem(**beside))


def test_a_constraint_of_its_own_takes_the_place_of_the_usual_one() -> None:
    class Sixteenths(Bare):
        constraints = (Constraint("dropout", "dropout in sixteenths", lambda _: ""),)

    assert Sixteenths().unsupported_reasons(problem(dropout=0.5)) == ()


def test_the_order_that_is_set_counts_on_every_device() -> None:
    assert chosen(Plain, Flash) == "flash"
    with mlbackends.sdpa_kernel([MATH, FLASH], set_priority=True):
        assert chosen(Plain, Flash) == "plain"
    with mlbackends.sdpa_kernel([MATH, FLASH]):
        assert chosen(Plain, Flash) == "flash"


def test_a_switch_that_is_off_is_a_reason_beside_the_others() -> None:
    mlbackends.cuda.enable_flash_sdp(False)

    decision = choose(problem(mask=TensorSpec((16, 16), "bool")), among=[Flash(), Plain()])

    assert decision.chosen == "plain"
    off, mask = decision.verdicts[0].reasons
    assert off.code == "switched-off"
    assert off.message == "flash attention is switched off: cuda.flash_sdp was set in this program"
    assert mask.code == "mask"


def test_a_missing_part_counts_here_and_not_for_another_machine() -> None:
    among = [Unpacked(), Plain()]

    assert choose(problem(), among=among).chosen == "plain"
    assert choose(problem(), among=among).verdicts[0].reasons[0].hint == "install one"
    assert choose(problem(), among=among, here=False).chosen == "unpacked"


@pytest.mark.parametrize("feature", OPTIONAL)
def test_what_a_backend_does_not_declare_it_refuses(feature: str) -> None:
    asking = {
        "dropout": {"dropout": 0.5},
        "grouped_heads": {"key": FEW, "value": FEW, "enable_gqa": True},
        "alibi": {"alibi_slopes": TensorSpec((4,), "float32")},
        "mask": {"mask": TensorSpec((16, 16), "bool")},
        "float64_inside": {"inner_dtype": "float64"},
        "gradient": {"query": TensorSpec(SPEC.shape, SPEC.dtype, requires_grad=True)},
        "logsumexp": {"logsumexp": True},
        "lower_right": {
            "query": TensorSpec((2, 4, 8, 64), "float16"),
            "is_causal": True,
            "lower_right": True,
        },
        "nested": dict.fromkeys(("query", "key", "value"), TensorSpec((2, 4, 0, 64), "float16", nested=True)),
        "pages": {"page_table": TensorSpec((2, 1), "int32"), "key_lengths": (16, 9)},
        "sinks": {"sinks": TensorSpec((4,), "float16")},
        "softcap": {"softcap": 30.0},
        "variable_lengths": {
            **dict.fromkeys(("query", "key", "value"), TensorSpec((1, 4, 16, 64), "float16")),
            "query_lengths": (7, 9),
            "key_lengths": (9, 7),
        },
        "window": {"window": (8, 0)},
    }[feature]

    class Able(Bare):
        takes = frozenset({feature})

    question = problem(**asking)  # type: ignore[arg-type]
    assert Able().unsupported_reasons(question) == ()
    assert [reason.code for reason in Bare().unsupported_reasons(question)] == [OPTIONAL[feature].code]


def test_a_backend_refuses_to_run_with_the_reasons_that_it_gave() -> None:
    question = problem(mask=TensorSpec((16, 16), "bool"))

    Flash().require(problem())
    with pytest.raises(NoBackend, match="flash does not support this: masks are not supported") as caught:
        Flash().require(question)
    assert caught.value.reasons == Flash().unsupported_reasons(question)


def test_nobody_is_told_as_torch_tells_it() -> None:
    mask = TensorSpec((16, 16), "bool")
    with mlbackends.sdpa_kernel([]):
        error = no_backend(choose(problem(), among=[Plain(), Flash()]))
        assert str(error).startswith("No viable backend for scaled_dot_product_attention")
        assert [reason.code for reason in error.reasons] == ["switched-off"] * 2
    with mlbackends.sdpa_kernel([FLASH]):
        error = no_backend(choose(problem(mask=mask), among=[Plain(), Flash()]))
        assert str(error).startswith("No available kernel. Aborting execution.")
        assert "flash: masks are not supported" in str(error)
        assert "plain: the plain formula is switched off" in str(error)


def test_a_backend_that_no_switch_reaches_is_refused() -> None:
    with pytest.raises(TypeError, match="needs `name`"):
        type("Nameless", (AttentionBackend,), {"answers_to": MATH})
    with pytest.raises(TypeError, match="an SDPBackend"):
        type("Wrong", (AttentionBackend,), {"name": "wrong", "answers_to": SDPBackend.ERROR})
    with pytest.raises(TypeError, match="takes has gradients; it may have dropout, float64_inside, gradient"):
        type("Typo", (Bare,), {"takes": frozenset({"gradients"})})


# ---- the default order, which cuDNN heads on some GPUs ----------------------------


def order(sm: str, version: int, *among: type[AttentionBackend]) -> tuple[SDPBackend, ...]:
    asked = problem(device=Device("cuda", 0, capability=sm))
    backends = [kind() for kind in among or (Cudnn, Flash, Plain)]
    ordered = dispatch.in_order(asked, backends, Environment(cudnn_version=version))
    return tuple(backend.answers_to for backend in ordered)


OLD, NEW = (FLASH, MATH, CUDNN), (CUDNN, FLASH, MATH)


@pytest.mark.parametrize(
    ("sm", "version", "wanted"),
    [
        ("9.0", 91501, NEW),
        ("10.0", 91501, NEW),
        ("10.3", 92000, NEW),
        ("9.0", 91500, OLD),
        ("9.0", 0, OLD),
        ("8.0", 92000, OLD),
        ("12.0", 92000, OLD),
        ("", 92000, OLD),
    ],
)
def test_cudnn_comes_first_where_torch_puts_it(sm: str, version: int, wanted: tuple[SDPBackend, ...]) -> None:
    assert order(sm, version) == wanted


def test_cudnn_stays_where_somebody_has_said_something() -> None:
    with mlbackends.sdpa_kernel([MATH], set_priority=True):
        assert order("9.0", 92000)[0] is MATH
    assert order("9.0", 92000) == NEW
    assert store.read(PRIORITY_ORDER) == (1, 2, 0, 3, 4)


def test_cudnn_stays_where_the_environment_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_CUDNN_SDPA_DEPRIORITIZED", "1")
    store.forget()
    try:
        assert order("9.0", 92000) == OLD
    finally:
        monkeypatch.undo()
        store.forget()
    assert order("9.0", 92000) == NEW


def test_without_a_backend_of_cudnn_nobody_looks_for_cudnn() -> None:
    assert order("9.0", 92000, Flash, Plain) == (FLASH, MATH)


# ---- the folder -------------------------------------------------------------------


def test_every_file_of_kernels_that_holds_a_backend_is_asked() -> None:
    from mlbackends.base import registry

    found = {backend.name for backend in dispatch.backends()}

    assert "math" in found
    assert found <= set(registry.names("mlbackends_kernels"))
    for backend in dispatch.backends():
        assert backend.answers_to in SWITCHES
        runs = (type(backend).run, type(backend).run_with_logsumexp)
        assert runs != (AttentionBackend.run, AttentionBackend.run_with_logsumexp)


def test_a_module_offers_its_own_backend_and_none_that_it_imports() -> None:
    module: Any = ModuleType("somebodys_kernel")
    module.Plain = Plain
    assert dispatch.backend_class(module) is None

    module.Own = type("Own", (Plain,), {"__module__": "somebodys_kernel"})
    assert dispatch.backend_class(module) is module.Own
    assert dispatch.backend_class(Plain) is Plain
    assert dispatch.backend_class(int) is None


def test_asking_about_a_gpu_that_is_not_here_computes_nothing() -> None:
    import subprocess

    program = (
        "import sys\n"
        "from mlbackends.model.problem import AttentionProblem, TensorSpec\n"
        "from mlbackends.model.records import Device\n"
        "from mlbackends.sdpa.dispatch import choose\n"
        "spec = TensorSpec((2, 8, 1024, 64), 'float16')\n"
        "device = Device('cuda', 0, capability='9.0')\n"
        "problem = AttentionProblem(query=spec, key=spec, value=spec, device=device)\n"
        "print(choose(problem, here=False).chosen)\n"
        "assert not {'numpy', 'torch', 'triton', 'cuda', 'rich'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_an_addition_that_brings_no_backend_is_told_with_its_reason(tmp_path: Path) -> None:
    import os
    import subprocess

    info = tmp_path / "somebody-1.0.dist-info"
    info.mkdir()
    names = ("absent", "empty", "half", "misnamed", "right")
    points = "".join(f"{name} = additions.{name}\n" for name in names)
    (info / "entry_points.txt").write_text(f"[mlbackends.kernels]\n{points}")
    (tmp_path / "additions").mkdir()
    backend = (
        "from mlbackends.sdpa.backend import AttentionBackend\n"
        "from mlbackends.sdpa.switches import SDPBackend\n"
        "class Own(AttentionBackend):\n"
        "    name, answers_to = '{}', SDPBackend.MATH\n"
        "    def __init__(self):\n"
        "        {}\n"
    )
    sources = {
        "absent": "import nothing_of_this_name",
        "empty": "",
        "half": backend.format("half", "raise OSError('no driver')"),
        "misnamed": backend.format("another", "pass"),
        "right": backend.format("right", "pass"),
    }
    for name, source in sources.items():
        (tmp_path / "additions" / f"{name}.py").write_text(source)
    program = (
        "from mlbackends.model.problem import AttentionProblem, TensorSpec\n"
        "from mlbackends.sdpa.dispatch import backends, choose\n"
        "spec = TensorSpec((1, 1, 2, 2), 'float32')\n"
        "print(*[each.name for each in backends()])\n"
        "decision = choose(AttentionProblem(query=spec, key=spec, value=spec))\n"
        "for verdict in decision.verdicts:\n"
        "    if verdict.answers_to == 'ERROR':\n"
        "        reason, = verdict.reasons\n"
        "        print(verdict.backend, reason.code, reason.message, sep=' | ')\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    brought, *told = done.stdout.splitlines()
    assert brought.split()[-1] == "right" and not {*names[:-1], "another"} & set(brought.split())
    start = "the addition {} cannot be used: "
    assert [line.partition(" | ")[0] for line in told] == list(names[:-1])
    assert all(line.split(" | ")[1] == "probe-error" for line in told)
    assert start.format("absent") + "ModuleNotFoundError: No module named 'nothing_of" in told[0]
    assert start.format("empty") + "it defines no AttentionBackend" in told[1]
    assert start.format("half") + "OSError: no driver" in told[2]
    assert start.format("misnamed") + "its backend is named 'another', not as" in told[3]


def test_who_wants_a_gradient_reads_what_to_do() -> None:
    wanting = TensorSpec(SPEC.shape, SPEC.dtype, requires_grad=True)
    decision = choose(problem(query=wanting), among=[Plain(), Flash()])
    error = no_backend(decision)
    assert "plain: gradients are not supported; query requires one" in str(error)
    assert str(error).endswith("hint: call it under torch.no_grad(), or pass tensor.detach()")
    every = dict.fromkeys(("query", "key", "value"), wanting)
    assert "query, key and value require one" in str(no_backend(choose(problem(**every), among=[Plain()])))
