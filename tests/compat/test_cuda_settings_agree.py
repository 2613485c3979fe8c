"""The settings of torch.backends.cuda compared with torch's, and tensors that stand for others."""

from __future__ import annotations

from typing import Any

import pytest
from builds import without_cuda

import mlbackends
from mlbackends.switches import store

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("name", ["_LinalgBackend", "_BlasBackend", "_ROCmFABackend"])
def test_the_members_have_torch_s_names_and_numbers(name: str) -> None:
    from mlbackends.cuda import preferences

    theirs, ours = getattr(torch._C, name), getattr(preferences, name)
    assert {member.name: int(member) for member in ours} == {
        text: int(member) for text, member in theirs.__members__.items()
    }
    assert repr(ours.Default) == repr(theirs.Default)
    assert {str(member) for member in ours} == {str(member) for member in theirs.__members__.values()}


@pytest.mark.parametrize(
    "call",
    [
        lambda cuda: cuda.preferred_linalg_library("bogus"),
        lambda cuda: cuda.preferred_linalg_library(3),
        lambda cuda: cuda.preferred_blas_library("bogus"),
        lambda cuda: cuda.preferred_blas_library(3),
        lambda cuda: cuda.preferred_rocm_fa_library("bogus"),
        lambda cuda: cuda.preferred_rocm_fa_library(3),
        lambda cuda: cuda.blas_workspace_size(backend="ck"),
        lambda cuda: cuda.blas_workspace_size(backend="bogus"),
        lambda cuda: cuda.blas_workspace_size(backend=3),
    ],
)
def test_a_setting_is_refused_with_torch_s_exception(call: Any) -> None:
    with pytest.raises((RuntimeError, ValueError)) as theirs:
        call(torch.backends.cuda)
    with pytest.raises(theirs.type) as ours:
        call(mlbackends.cuda)
    # The start is what a program may look for; torch's text for a wrong type on ROCm is a misnomer.
    start = str(theirs.value).rstrip(".").partition(" value.")[0]
    assert str(ours.value).startswith(start)


@without_cuda
def test_a_library_is_that_of_the_build_in_torch_and_that_of_this_machine_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mlbackends.cuda.preferences._found_by_probe", lambda *_: True)
    with pytest.raises(RuntimeError, match="compiled with cuBLASLt"):
        torch.backends.cuda.preferred_blas_library("cublaslt")
    with store.restored("cuda.preferred_blas_library"):
        assert mlbackends.cuda.preferred_blas_library("cublaslt").name == "Cublaslt"


@without_cuda
def test_an_unknown_name_of_plan_caches_asks_for_a_device_in_torch_and_is_unknown_here() -> None:
    for error, backends in ((AssertionError, torch.backends), (AttributeError, mlbackends)):
        with pytest.raises(error):
            _ = backends.cuda.cufft_plan_cache.nosuch
        with pytest.raises(error):
            backends.cuda.cufft_plan_cache.max_sise = 3


# ---- tensors of several kinds -----------------------------------------------------

GENERATOR = torch.Generator().manual_seed(5)
ATTENTION = "scaled_dot_product_attention"


def numbers(*shape: int) -> Any:
    return torch.randn(shape, generator=GENERATOR)


def attend(a: Any) -> Any:
    return mlbackends.scaled_dot_product_attention(a, a, a)


def test_a_fake_tensor_has_a_fake_result_inside_and_outside_its_mode() -> None:
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = torch.randn(3, 3)
        for tensor in (fake, numbers(3, 3)):
            assert isinstance(attend(tensor), FakeTensor)
    assert isinstance(attend(fake), FakeTensor)


def test_a_tensor_of_a_subclass_that_answers_for_others_does_so() -> None:
    kind = pytest.importorskip("torch.testing._internal.two_tensor").TwoTensor
    one, other = numbers(3, 3), numbers(3, 3)
    two = attend(kind(one, other))
    assert torch.equal(two.a, attend(one)) and torch.equal(two.b, attend(other))


def test_who_writes_a_graph_gets_no_constant() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    a, other = numbers(3, 3), numbers(3, 3)
    for write in (
        make_fx(attend),
        make_fx(attend, pre_dispatch=True),
        make_fx(attend, tracing_mode="fake"),
        lambda given: torch.jit.trace(attend, (given,)),
        lambda given: torch.fx.symbolic_trace(attend),
        make_fx(torch.func.functionalize(attend)),
    ):
        assert torch.equal(write(a)(other), attend(other))


def test_parameters_subclasses_and_views_of_plain_tensors_are_read() -> None:
    named = type("Named", (torch.Tensor,), {})
    a = numbers(3, 3)
    for kind in (torch.nn.Parameter(a, requires_grad=False), a.as_subclass(named), a.T.T):
        assert torch.equal(attend(kind), attend(a))


def test_elements_of_an_unsupported_type_are_refused_by_name() -> None:
    quantized = torch.quantize_per_tensor(numbers(3, 3), 0.1, 0, torch.qint8)
    with pytest.raises(TypeError, match=rf"^{ATTENTION}\(\): \w+( 0)?: elements of type qint8"):
        attend(quantized)


def test_caches_are_a_list_that_is_made_at_the_first_use_as_in_torch() -> None:
    for cuda in (torch.backends.cuda, mlbackends.cuda):
        manager = cuda.cuFFTPlanCacheManager()
        assert manager.caches == []
        if torch.cuda.is_available():
            assert manager[0] is manager.caches[0]
            assert len(manager.caches) == torch.cuda.device_count()
