"""Every public name of torch.backends, and of what goes with it, beside ours: torch 2.15, and older ones.

Names, signatures and kinds are walked by introspection. Values, freezing and environment variables
are tried on both sides by sides.py, in a process of its own. A difference must be one that
mlbackends.switches.deviations lists, and each that is listed here must be seen.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
import types
import typing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from builds import IS_NEWEST, RELEASE, without_cuda

from mlbackends.switches.deviations import DEVIATIONS
from mlbackends.switches.table import SWITCHES

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Explained(NamedTuple):
    """A difference that is a deviation. subject: a pattern of names. The others: regular expressions."""

    code: str
    subject: str
    aspect: str
    torchs: str = ".*"
    ours: str = ".*"


def rules(explained: dict[str, list[tuple[str, ...]]]) -> tuple[Explained, ...]:
    return tuple(Explained(code, *row) for code, all_of in explained.items() for row in all_of)


TAKEN, REFUSED = "accepted.*", r"\w+Error"

NAMES = rules(
    {
        "module-is-one-object": [
            ("*", "type of m"),
            ("python_native.PythonNativeModule", "signature"),
        ],
        "types-by-name": [("cudnn.CUDNN_TENSOR_DTYPES", "value")],
        "launcher-has-no-logger": [("xeon.run_cpu.*", "name", "there", "missing")],
        "causal-bias-is-no-tensor": [("CausalBias", "bases")],
        "known-wrong-kinds-avoided": [("sdpa_kernel", "signature", ".*", ".*avoid_known_wrong=False.*")],
    }
)
VALUES = rules(
    {
        "words-are-text": [("*precision", r"\w+ b'\w+'.*", ".*", "TypeError|RuntimeError|silent")],
        "matmul-precision-word-refused": [
            ("float32_matmul_precision", "function '.*'", TAKEN, "RuntimeError"),
            ("float32_matmul_precision", ".*: warnings", "UserWarning", "silent"),
        ],
        "mkldnn-precision-is-its-own": [("mkldnn.fp32_precision", "attribute '.*': state of .*")],
        "all-or-nothing": [
            ("cudnn.*", "flags .*: state of cudnn.enabled", "False", "True"),
            ("mkldnn.*", "flags .*: state of mkldnn.enabled", "False", "True"),
            ("cuda.preferred_linalg_library", ".*: state of .*", "Cusolver|Magma", "Default"),
        ],
        "flags-warn-of-disabling": [
            ("cudnn.*", "flags .*: warnings", "silent", "UserWarning"),
            ("mkldnn.allow_tf32", "flags False: warnings", ".*", "UserWarning, UserWarning"),
            ("mkldnn.allow_tf32", "flags None: warnings", "silent", "UserWarning"),
        ],
        "mkldnn-flags-are-quiet": [("mkldnn.*", "flags .*: warnings", "UserWarning", "silent")],
        "benchmark-limit-is-a-number": [("cudnn.benchmark_limit", "attribute .*", TAKEN, REFUSED)],
        "fastpath-is-a-bool": [("mha.fastpath_enabled", "function .*", TAKEN, "RuntimeError")],
        "einsum-switches-checked": [
            ("opt_einsum.*", "attribute .*", TAKEN, REFUSED),
            ("opt_einsum.*", "attribute None: state of .*", "None"),
            ("opt_einsum.enabled", "(set_)?flags .*", TAKEN, "RuntimeError"),
        ],
        "einsum-strategies-of-opt-einsum": [("opt_einsum.strategy", "(set_)?flags .*", "ValueError", TAKEN)],
        "cxx-warnings-are-warnings": [
            ("cuda.preferred_*", "function '(ck|magma)': warnings", "silent", "UserWarning")
        ],
        "workspaces-without-cuda": [
            ("cuda.*_workspace_size", "function [^:]*", "AttributeError"),
            ("cuda.cublaslt_workspace_size", ".*: warnings", "silent", "UserWarning"),
        ],
        "priority-order-checked": [("cuda.sdp_priority_order", "function .*", TAKEN, "RuntimeError")],
    }
)
FREEZING = rules(
    {
        "workspaces-without-cuda": [("cuda.*_workspace_size", "frozen.*", "AttributeError", TAKEN)],
        "benchmark-limit-is-a-number": [
            ("cudnn.benchmark_limit", "frozen: attribute", TAKEN, "RuntimeError")
        ],
        "flags-warn-of-disabling": [("*", "frozen.*: flags: warnings", "silent", "UserWarning")],
        "mkldnn-flags-are-quiet": [("mkldnn.*", "frozen.*: flags: warnings", "UserWarning", "silent")],
    }
)
_LATER = next(deviation for deviation in DEVIATIONS if deviation.code == "variables-are-checked-together")
VARIABLES = rules(
    {
        "workspaces-without-cuda": [("cuda.*_workspace_size", "fresh", "AttributeError")],
        _LATER.code: [
            (SWITCHES[name].variable, "complaint .*", "silent", "UserWarning") for name in _LATER.names
        ],
    }
)


HERE = {name: flag for name, flag in SWITCHES.items() if flag.since <= f"{RELEASE[0]}.{RELEASE[1]}"}
#: What an older torch lacks: the last parameter of get_dsl_operations, and two of the DSLs.
OLDER = () if IS_NEWEST else ("python_native*.get_dsl_operations", "python_native.all_dsls")


def unexplained(found: list[tuple[str, ...]], known: tuple[Explained, ...]) -> list[Any]:
    """Return the differences that no rule explains, and the rules that explain none."""
    seen: set[Explained] = set()
    left: list[Any] = []
    for difference in found:
        rule = next((rule for rule in known if explains(rule, difference)), None)
        if rule is None:
            left.append(difference)
        else:
            seen.add(rule)
    return left + [rule for rule in known if rule not in seen]


def explains(rule: Explained, difference: tuple[str, ...]) -> bool:
    subject, *rest = difference
    return fnmatch.fnmatchcase(subject, rule.subject) and all(
        re.fullmatch(pattern, seen) for pattern, seen in zip(rule[2:], rest, strict=True)
    )


def test_each_rule_names_a_deviation() -> None:
    codes = {deviation.code for deviation in DEVIATIONS}

    assert {rule.code for rule in (*NAMES, *VALUES, *FREEZING, *VARIABLES)} <= codes


# ---- names, signatures and kinds ----------------------------------------------

#: What torch.backends has as sub-modules, also those that it does not import by itself.
MODULES = [
    "", "cpu", "cuda", "cudnn", "cudnn.rnn", "cusparselt", "kleidiai", "mha", "miopen", "mkl", "mkldnn",
    "mps", "nnpack", "openmp", "opt_einsum", "python_native", "quantized", "xeon", "xeon.run_cpu", "xnnpack",
]  # fmt: skip
#: What goes with it, from elsewhere in torch.
BESIDE = {
    "torch.nn.attention": ["SDPBackend", "sdpa_kernel"],
    "torch.nn.attention.bias": ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"],
}  # fmt: skip
#: Classes whose signature is told by no Python; tests/compat/test_sdpa_agrees.py tries them.
IN_CXX = ("SDPBackend", "SDPAParams")
_Cached = type(functools.cache(lambda: None))


def public_names(module: Any) -> list[str]:
    """Return a module's __all__, and every name without an underscore that is its own."""
    held = getattr(module, "m", module)
    found = set(getattr(held, "__all__", ()))
    for place in (held, module, type(module)):
        found |= {name for name, value in vars(place).items() if is_own(module, name, value)}
    return sorted(found)


def is_own(module: Any, name: str, value: object) -> bool:
    imported = (vars(place).get(name, module) is value for place in (typing, argparse))
    if name.startswith("_") or any(imported):
        return False
    if isinstance(value, types.ModuleType):
        return value.__name__.startswith(f"{module.__name__}.") or name == "m"
    if isinstance(value, type | types.FunctionType | _Cached):
        return bool(value.__module__ == module.__name__)
    return type(value).__module__ not in ("typing", "__future__")


def signature(function: Any) -> str:
    """Return a signature without annotations."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(function).parameters.values()
    ]
    return str(inspect.Signature(parameters))


def differences_of(name: str, theirs: Any, ours: Any) -> list[tuple[str, ...]]:
    """Compare what is behind one name: its kind, its signature, its value, and a class's members."""
    short = name.rpartition(".")[2]
    if isinstance(theirs, type):
        return differences_of_classes(name, theirs, ours)
    if callable(theirs):
        said = signature(theirs), signature(ours)
        return [(name, "signature", *said)] if said[0] != said[1] else []
    if isinstance(theirs, types.ModuleType):
        same = isinstance(ours, types.ModuleType) and (short != "m" or type(ours) is type(theirs))
        return [] if same else [(name, "type of m", str(type(theirs)), str(type(ours)))]
    if type(theirs).__module__.startswith("torch."):
        said = type(theirs).__name__.lstrip("_"), type(ours).__name__.lstrip("_")
    else:
        said = repr(theirs), repr(ours)
    return [(name, "value", *said)] if said[0] != said[1] else []


def differences_of_classes(name: str, theirs: type, ours: Any) -> list[tuple[str, ...]]:
    assert isinstance(ours, type), name
    found: list[tuple[str, ...]] = []
    wanted = {ancestor.__name__ for ancestor in theirs.__mro__} - {
        "pybind11_object",
        "IntEnum",
        "Tensor",
        "TensorBase",
    }
    if not wanted <= {ancestor.__name__ for ancestor in ours.__mro__}:
        found.append((name, "bases", str(theirs.__mro__), str(ours.__mro__)))
    if "Tensor" in {ancestor.__name__ for ancestor in theirs.__mro__}:
        found.append((name, "bases", "a Tensor", "no Tensor"))
    if name.rpartition(".")[2] not in IN_CXX and signature(theirs) != signature(ours):
        found.append((name, "signature", signature(theirs), signature(ours)))
    # A module's class may have what the module itself has.
    place = sys.modules[ours.__module__] if issubclass(ours, types.ModuleType) else ours
    for member, value in vars(theirs).items():
        if member.startswith("_"):
            continue
        if not hasattr(place, member) and not any(member in vars(ancestor) for ancestor in ours.__mro__):
            found.append((f"{name}.{member}", "name", "there", "missing"))
        elif isinstance(value, types.FunctionType):
            bound = getattr(place, member)
            said = signature(value), signature(bound)
            if isinstance(place, types.ModuleType):
                said = said[0].replace("(self, ", "(").replace("(self)", "()"), said[1]
            if said[0] != said[1]:
                found.append((f"{name}.{member}", "signature", *said))
    return found


def differences_of_names() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    places = [(f"torch.backends.{name}".strip("."), name) for name in MODULES]
    for path, below in [*places, *((path, "") for path in BESIDE)]:
        theirs = importlib.import_module(path)
        ours = importlib.import_module(f"mlbackends.{below}".strip("."))
        for short in BESIDE.get(path) or public_names(theirs):
            name = f"{below}.{short}".strip(".")
            if name in SWITCHES:
                continue  # compared by its value, below
            if not hasattr(ours, short):
                found.append((name, "name", "there", "missing"))
                continue
            held = theirs if hasattr(theirs, short) else theirs.m
            found += differences_of(name, getattr(held, short), getattr(ours, short))
    return found


def test_no_module_of_torch_is_left_out() -> None:
    walked = pkgutil.walk_packages(torch.backends.m.__path__, "torch.backends.")
    found = {entry.name.removeprefix("torch.backends.") for entry in walked if "._" not in entry.name}

    assert found == set(MODULES) - {""}


def test_each_public_name_is_there_with_the_same_signature_and_value() -> None:
    found = differences_of_names()
    found = [entry for entry in found if not any(fnmatch.fnmatch(entry[0], old) for old in OLDER)]
    # A torch with CUDA lists Triton where it is installed; ours asks for a driver, too.
    found = [entry for entry in found if entry[0] != "python_native.available_dsls"]
    assert unexplained(found, NAMES) == []


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, flag in SWITCHES.items()
        if flag.reached == "attribute" and flag.since <= f"{RELEASE[0]}.{RELEASE[1]}"
    ],
)
def test_each_switch_that_is_an_attribute_is_one_in_torch(name: str) -> None:
    pkgutil.resolve_name(f"torch.backends.{name}")


def test_each_switch_of_torchs_modules_is_a_row() -> None:
    missing = []
    for below in MODULES:
        module: Any = importlib.import_module(f"torch.backends.{below}".strip("."))
        held = {**vars(type(module)), **vars(module)}
        for name, value in held.items():
            settable = hasattr(type(value), "__set__") and not isinstance(
                value, property | types.MemberDescriptorType
            )
            if settable and not name.startswith("_") and f"{below}.{name}".strip(".") not in SWITCHES:
                missing.append(f"{below}.{name}")
    assert missing == ["quantized.supported_engines"]


# ---- values, freezing, variables -------------------------------------------


def run(*arguments: str, **variables: str) -> list[tuple[str, ...]]:
    """Return the differences that sides.py finds with these variables."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(
            ("TORCH_", "PYTORCH_", "MLBACKENDS_", "ATEN_", "CUBLAS", "MKL_", "ONEDNN_", "OMP_")
        )
    }
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("sides.py")), *arguments],
        env={**environment, "PYTHONPATH": os.pathsep.join(sys.path), **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_each_value_is_taken_or_refused_as_in_torch() -> None:
    names = [name for name, flag in HERE.items() if flag.reached != "variable"]
    rules = VALUES
    if torch.version.cuda:  # what that build takes, the rules have nothing of
        apart = ("cudnn.", "cuda.preferred_", "cuda.cublas", "cuda.*_workspace")
        names = [name for name in names if not name.startswith(apart)]
        rules = tuple(rule for rule in VALUES if not rule.subject.startswith(apart))

    assert unexplained(run("values", *names), rules) == []


@pytest.mark.slow
@without_cuda
def test_each_switch_is_frozen_as_in_torch() -> None:
    assert unexplained(run("freezing"), FREEZING) == []


#: Every variable of torch's that gives a switch its first value, and words for each round.
BOOLEANS = sorted(
    {
        *(
            name
            for flag in HERE.values()
            for name in flag.variables
            if name.startswith(("TORCH_", "PYTORCH_"))
        ),
        "TORCH_CUBLASLT_UNIFIED_WORKSPACE",
    }
)
ROUNDS = list(
    zip(
        ("0", "1", "", "2", "true", " 1", "off"),
        ("avx2", "default", "", "AVX2", "sse4", "vsx", "avx512"),
        strict=True,
    )
)


@pytest.mark.slow
@without_cuda
def test_each_variable_means_the_same_as_in_torch() -> None:
    found = run("fresh")
    for boolean, capability in ROUNDS:
        words = dict.fromkeys(BOOLEANS, boolean)
        found += run("fresh", ATEN_CPU_CAPABILITY=capability, **words)
    found += run("fresh", TORCH_LINALG_PREFER_HIPSOLVER="1", TORCH_BLAS_PREFER_HIPBLASLT="1")

    assert unexplained(found, VARIABLES) == []
