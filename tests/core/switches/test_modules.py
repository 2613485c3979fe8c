"""Modules with switches: attributes, refusals, scopes, and that they stay modules."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import subprocess
import sys
import threading
import types
from typing import Any

import pytest

import mlbackends
from mlbackends.switches import modules, store
from mlbackends.switches.table import SWITCHES

MODULES = (
    "cpu", "cuda", "cudnn", "cudnn.rnn", "cusparselt", "kleidiai", "mha", "miopen", "mkl", "mkldnn", "mps",
    "nnpack", "openmp", "opt_einsum", "python_native", "quantized", "xeon", "xnnpack",
)  # fmt: skip


pytestmark = pytest.mark.usefixtures("fresh_switches")


def module(name: str) -> Any:
    return importlib.import_module(f"mlbackends.{name}".rstrip("."))


def python(program: str, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, *options, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- attributes -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["", *MODULES])
@pytest.mark.parametrize("typo", ["nosuch", "enabeld", "fp32_precison", "m2"])
def test_an_unknown_name_is_neither_read_nor_set(name: str, typo: str) -> None:
    place = module(name)

    with pytest.raises(AttributeError, match=typo):
        getattr(place, typo)
    with pytest.raises(AttributeError, match=typo):
        setattr(place, typo, 1)
    assert typo not in dir(place)
    assert getattr(place, typo, None) is None


@pytest.mark.parametrize(
    ("name", "typo", "meant"),
    [
        ("cudnn", "benchmrak", "benchmark"),
        ("cudnn", "Enabled", "enabled"),
        ("", "fp32_precison", "fp32_precision"),
        ("", "cudn", "cudnn"),
        ("cuda", "enable_flash_spd", "enable_flash_sdp"),
        ("opt_einsum", "stratgy", "strategy"),
    ],
)
def test_the_name_that_was_meant_is_said(name: str, typo: str, meant: str) -> None:
    for action in (lambda: getattr(module(name), typo), lambda: setattr(module(name), typo, 1)):
        with pytest.raises(AttributeError, match=f"did you mean '{meant}'") as caught:
            action()
        assert caught.value.name == typo


@pytest.mark.parametrize("path", ["cuda.matmul", "cudnn.conv", "mkldnn.matmul"])
def test_an_object_with_switches_refuses_too(path: str) -> None:
    name, _, attribute = path.partition(".")
    held = getattr(module(name), attribute)

    for action in (lambda: held.fp32_precison, lambda: setattr(held, "fp32_precison", "ieee")):
        with pytest.raises(AttributeError, match="did you mean 'fp32_precision'"):
            action()
    assert "fp32_precision" in dir(held)
    assert not hasattr(held, "nosuch")


def test_what_is_read_from_the_second_value_says_so_when_it_is_set() -> None:
    matmul: Any = mlbackends.cuda.matmul
    with pytest.raises(AttributeError, match="second value of allow_bf16_reduced_precision_reduc"):
        matmul.allow_bf16_reduced_precision_reduction_split_k = False
    assert matmul.allow_bf16_reduced_precision_reduction_split_k is True


def test_a_precision_of_no_operation_is_refused() -> None:
    with pytest.raises(RuntimeError, match="'pooling' of 'cuda'"):
        _ = modules.FP32Precision("cuda", "pooling").fp32_precision
    generic = modules.FP32Precision("generic", "all")
    generic.fp32_precision = "ieee"
    assert mlbackends.fp32_precision == "ieee"
    assert (generic.backend, generic.op) == ("generic", "all")


def test_what_a_test_replaces_can_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlbackends.cudnn, "is_available", lambda: True)
    monkeypatch.setattr(mlbackends.cudnn, "benchmark", True)
    monkeypatch.setattr("mlbackends.mkldnn.VERBOSE_ON", 7)

    assert mlbackends.cudnn.is_available() is True
    assert store.read("cudnn.benchmark") is True
    monkeypatch.undo()
    assert store.read("cudnn.benchmark") is False
    assert mlbackends.mkldnn.VERBOSE_ON == 1


# ---- freezing -------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, flag in SWITCHES.items() if flag.reached == "attribute"])
def test_freezing_holds_for_the_rows_that_say_so(name: str) -> None:
    flag = SWITCHES[name]
    place: Any = mlbackends
    for part in flag.module.split(".") if flag.module else ():
        place = getattr(place, part)
    value = getattr(place, flag.attribute)
    if flag.read_only:
        return
    mlbackends.disable_global_flags()

    assert mlbackends.flags_frozen() is True
    if not flag.freezable:
        if value != "none" or flag.module != "quantized":  # where there is no engine, none can be set
            setattr(place, flag.attribute, value)
        return
    with pytest.raises(RuntimeError, match=f"not allowed to set mlbackends.*{flag.module}.* flags after"):
        setattr(place, flag.attribute, value)
    with getattr(mlbackends, "__allow_nonbracketed_mutation")():
        if name != "mkldnn.allow_tf32":  # which is None, and takes none
            setattr(place, flag.attribute, value)


def test_flags_and_set_flags_go_on_working_when_frozen() -> None:
    mlbackends.disable_global_flags()

    with mlbackends.cudnn.flags(enabled=True, benchmark=True):
        assert mlbackends.cudnn.benchmark is True
        with pytest.raises(RuntimeError, match="please use flags"):
            mlbackends.cudnn.benchmark = False
    assert mlbackends.cudnn.benchmark is False
    mlbackends.cudnn.set_flags(_benchmark=True)
    assert mlbackends.cudnn.benchmark is True


# ---- flags and set_flags ------------------------------------------------------------


def test_flags_set_what_is_not_said_too() -> None:
    cudnn: Any = mlbackends.cudnn
    cudnn.deterministic = True
    scope = cudnn.flags(benchmark=True)
    with pytest.warns(UserWarning, match=r"cudnn[.]flags\(benchmark=True\) also turns cudnn off"):
        scope.__enter__()
    assert (cudnn.enabled, cudnn.deterministic) == (False, False)
    scope.__exit__(None, None, None)
    assert (cudnn.enabled, cudnn.deterministic) == (True, True)


def test_bare_flags_disable_without_a_word() -> None:
    with mlbackends.cudnn.flags(), mlbackends.mkldnn.flags(), mlbackends.nnpack.flags():
        assert (mlbackends.cudnn.enabled, mlbackends.mkldnn.enabled) == (False, False)
        assert store.read("nnpack.enabled") is False
    assert store.read("nnpack.enabled") is True


def test_a_refused_scope_says_nothing_and_changes_nothing() -> None:
    scope = mlbackends.cudnn.flags(benchmark=True, deterministic=1)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"cudnn[.]deterministic expects a bool"), scope:
        pass
    assert mlbackends.cudnn.enabled is True
    assert modules._warned == set()


def test_a_warning_that_is_an_error_leaves_the_state_as_it_was() -> None:
    with (
        pytest.raises(UserWarning, match="also turns cudnn off"),
        mlbackends.cudnn.flags(benchmark=True),
    ):
        pass
    assert (mlbackends.cudnn.enabled, mlbackends.cudnn.benchmark) == (True, False)


def test_a_limit_that_was_set_is_restored_where_there_is_no_cudnn() -> None:
    mlbackends.cudnn.benchmark_limit = 3
    with mlbackends.cudnn.flags(enabled=True):
        assert mlbackends.cudnn.benchmark_limit == 10
    assert mlbackends.cudnn.benchmark_limit == 3


def test_one_scope_object_serves_many_threads_as_a_decorator() -> None:
    seen: list[bool] = []

    @mlbackends.mkldnn.flags(enabled=True, deterministic=True)
    def work() -> None:
        seen.append(mlbackends.mkldnn.deterministic)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8


# ---- modules stay modules -------------------------------------------------------------


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_a_module(name: str) -> None:
    found = module(name)

    assert isinstance(found, types.ModuleType)
    assert found is sys.modules[f"mlbackends.{name}"]
    assert found.m is found
    assert found.__spec__.name == f"mlbackends.{name}"
    assert inspect.getfile(found).endswith(".py")
    assert inspect.getdoc(found)


def test_every_public_name_can_be_imported_from_its_module() -> None:
    program = f"""if True:
        import importlib
        for name in {("", *MODULES)!r}:
            path = f"mlbackends.{{name}}".rstrip(".")
            for each in dir(importlib.import_module(path)):
                if not each.startswith("_") and each not in ("sys", "load_flags"):
                    space = {{}}
                    exec(f"from {{path}} import {{each}}", space)
                    assert each in space, each
        """
    assert python(program) == ""


@pytest.mark.parametrize("name", MODULES)
def test_each_module_may_be_the_first_that_is_imported(name: str) -> None:
    program = f"import mlbackends.{name}; print(mlbackends.{name}.__name__, mlbackends.cudnn.benchmark)"

    assert python(program) == f"mlbackends.{name} False\n"


@pytest.mark.parametrize("name", ["cudnn", "mkldnn", "quantized", "switches.modules", "flag_store", "cuda"])
def test_reload_keeps_a_module_working(name: str) -> None:
    program = f"""if True:
        import importlib, mlbackends
        mlbackends.cudnn.benchmark
        importlib.reload(mlbackends.{name})
        importlib.reload(mlbackends)
        mlbackends.cudnn.benchmark = True
        with mlbackends.cudnn.flags(enabled=True): assert mlbackends.cudnn.benchmark is False
        assert mlbackends.cudnn.benchmark is True
        try: mlbackends.cudnn.nosuch = 1
        except AttributeError: print("refused")
        """
    program = program.replace(
        "mlbackends.switches.modules", "importlib.import_module('mlbackends.switches.modules')"
    )
    assert python(program) == "refused\n"


@pytest.mark.parametrize("path", ["cuda.matmul", "cudnn.conv", "mkldnn.rnn"])
def test_an_object_with_switches_is_copied_and_pickled(path: str) -> None:
    name, _, attribute = path.partition(".")
    held = getattr(module(name), attribute)

    for again in (copy.copy(held), copy.deepcopy(held), pickle.loads(pickle.dumps(held))):
        again.fp32_precision = "ieee"
        assert held.fp32_precision == "ieee"
        held.fp32_precision = "none"
        assert again.fp32_precision == "none"


def test_a_module_of_ones_own_may_have_such_switches() -> None:
    held = types.ModuleType("held")
    held.answer = 42  # type: ignore[attr-defined]
    kept: list[object] = [1]
    prop = modules.ContextProp(lambda: kept[-1], kept.append)
    made = type("Mine", (modules.PropModule,), {"number": prop})(held, "mine")

    assert (made.answer, made.number, made.m) == (42, 1, held)
    made.number = 2
    assert kept == [1, 2]
    mlbackends.disable_global_flags()
    with pytest.raises(RuntimeError, match="not allowed to set mine flags"):
        made.number = 3


def test_a_star_import_brings_what_is_public_and_nothing_else() -> None:
    program = (
        "import sys\nfrom mlbackends import *\n"
        "assert cudnn.enabled and callable(sdpa_kernel) and callable(flags) and callable(load_flags)\n"
        "print(*sorted({'sys', 'flag_store', 'model', 'answers'} & set(dir()) - {'sys'}))\n"
        "print(*sorted({'numpy', 'torch'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []


def test_dir_of_the_package_has_nothing_of_its_inside() -> None:
    shown = set(dir(mlbackends))

    assert not {"sys", "flag_cells", "flag_kinds", "model", "caller", "answers", "install"} & shown
    assert {"cudnn", "fp32_precision", "set_flags", "SDPBackend", "load_flags"} <= shown
    assert set(vars(mlbackends)["__all__"]) <= shown
