"""replace_attention: torch's function and transformers' models with ours, beside torch's flash attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: N812

import mlbackends

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # torch's and transformers' own
]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()


def block(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def test_torchs_function_is_ours_within_the_block_and_torchs_behind_it() -> None:
    inputs = [torch.randn(2, 4, 6, 8, requires_grad=True) for _ in "qkv"]
    before, wanted = F.scaled_dot_product_attention, block(*inputs)
    with mlbackends.replace_attention():
        found = block(*inputs)
        call = mlbackends.last_attention()
    assert F.scaled_dot_product_attention is before
    assert call is not None and (call.backend, call.direction) == ("flash_cpu", "forward")
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(out.sum(), inputs) for out in (found, wanted)))


@pytest.mark.parametrize("options", [{"is_causal": True}, {"enable_gqa": 2}])
def test_what_ours_refuses_is_torchs_answer(options: dict[str, Any]) -> None:
    given = {"attn_mask": torch.ones(6, 6, dtype=torch.bool), **options}
    inputs = [torch.randn(2, 4, 6, 8) for _ in "qkv"]

    def answer() -> Any:
        try:
            return F.scaled_dot_product_attention(*inputs, **given)
        except (RuntimeError, TypeError) as error:
            return str(error)

    wanted = answer()
    with mlbackends.replace_attention():
        found, call = answer(), mlbackends.last_attention()
    assert call is not None and call.backend == "torch" and str(call).endswith(")")  # with the reason
    if isinstance(wanted, str):
        assert found == wanted
    else:
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("backend", ["aot_eager", "mlbackends"])
def test_what_is_compiled_within_the_block_is_ours(backend: str) -> None:
    from mlbackends_kernels.bridges.torch_compile import compile_graph

    inputs = [torch.randn(2, 4, 6, 8, requires_grad=True) for _ in "qkv"]
    wanted = block(*inputs)
    with mlbackends.replace_attention():
        kind: Any = compile_graph if backend == "mlbackends" else backend
        found = torch.compile(block, backend=kind, fullgraph=True)(*inputs)
        call = mlbackends.last_attention()
    assert call is not None and call.backend == "flash_cpu"
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(*(torch.autograd.grad(out.sum(), inputs) for out in (found, wanted)))


def test_multi_head_attention_calls_ours_and_the_rest_is_torchs() -> None:
    module, x = torch.nn.MultiheadAttention(16, 2, dropout=0.5, batch_first=True), torch.randn(2, 5, 16)
    with mlbackends.replace_attention():
        module(x, x, x, need_weights=False)[0].sum().backward()
        call = mlbackends.last_attention()
        assert call is not None and (call.backend, call.direction) == ("flash_cpu", "backward")
        F.scaled_dot_product_attention(*[torch.randn(1, 2, 4, 8, device="meta")] * 3)
    call = mlbackends.last_attention()
    assert call is not None and call.backend == "torch" and "on meta" in call.why


def test_a_model_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError, match="Linear is not a model of transformers"):
        mlbackends.replace_attention(torch.nn.Linear(1, 1))


SIZES = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
#: Names of configurations of transformers, with what they call otherwise.
CAUSAL = (
    "Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Phi3", "Granite", "Cohere", "StableLm", "Olmo", "Olmo2",
    "Starcoder2", "GPTNeoX", "Phi", "SmolLM3",
)  # fmt: skip
MASKED = ("Bert", "Roberta", "Electra", "Camembert", "XLMRoberta")


def made(name: str, transformers: Any) -> Any:
    config = getattr(transformers, f"{name}Config")(**SIZES)
    config._attn_implementation = "sdpa"
    kind = "ForCausalLM" if name in CAUSAL else "ForMaskedLM"
    return getattr(transformers, name + kind)(config)


def trained(model: Any, tokens: Any, mask: Any) -> list[Any]:
    """Return the result of a model, and the gradients of its parameters."""
    model.zero_grad()
    logits = model(tokens, attention_mask=mask).logits
    logits[mask.bool()].square().mean().backward()
    return [logits[mask.bool()].detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


@pytest.mark.parametrize("name", [*CAUSAL, *MASKED])
def test_a_model_computes_and_trains_as_with_torch(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    model = made(name, transformers).eval()
    tokens = torch.randint(3, 99, (2, 12))
    mask = torch.ones_like(tokens)
    mask[0, 9:] = 0

    wanted = trained(model, tokens, mask)
    with mlbackends.replace_attention(model):
        found = trained(model, tokens, mask)
        call = mlbackends.last_attention()

    assert call is not None and (call.backend, call.direction) == ("flash_cpu", "backward")
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("name", ["Gemma2", "GptOss"])
def test_soft_caps_and_sinks_are_those_of_eager_attention(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    more = {"num_local_experts": 2, "num_experts_per_tok": 1, "attn_logit_softcapping": 0.5}
    config = getattr(transformers, f"{name}Config")(**SIZES, **more)
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    tokens = torch.randint(3, 99, (2, 12))
    with torch.no_grad():
        wanted = model(tokens).logits
        with mlbackends.replace_attention(model):
            found = model(tokens).logits
            call = mlbackends.last_attention()
    torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
    assert call is not None and call.backend != "torch"


def test_bert_trains_with_its_dropout() -> None:
    transformers = pytest.importorskip("transformers")
    model = made("Bert", transformers).train()
    tokens = torch.randint(3, 99, (2, 12))
    with mlbackends.replace_attention(model):
        torch.manual_seed(1)
        first = trained(model, tokens, torch.ones_like(tokens))
        torch.manual_seed(1)
        again = trained(model, tokens, torch.ones_like(tokens))
        other = trained(model, tokens, torch.ones_like(tokens))
        call = mlbackends.last_attention()
    assert call is not None and (call.backend, call.direction) == ("flash_cpu", "backward")
    torch.testing.assert_close(first, again)
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize("way", ["eager", "compiled"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pytorchs_own_samples_give_the_results_and_gradients_of_its_formula(
    monkeypatch: pytest.MonkeyPatch, dtype: Any, way: str
) -> None:
    # The module freezes torch's switches where it is imported, for the tests that follow too.
    monkeypatch.setattr(torch.backends, "disable_global_flags", lambda: None)
    samples = pytest.importorskip("torch.testing._internal.common_methods_invocations")
    drawn = samples.sample_inputs_scaled_dot_product_attention(None, "cpu", dtype, requires_grad=True)
    seen = 0
    for sample in drawn:
        if sample.kwargs.get("dropout_p"):
            continue
        call = F.scaled_dot_product_attention
        torch.compiler.reset()  # torch compiles a function a few times only
        tensors = (sample.input, *sample.args)
        doubles = [tensor.detach().double().requires_grad_() for tensor in tensors]
        wanted = call(*doubles, **wide(sample))
        exact = torch.autograd.grad(wanted.square().sum(), doubles)
        with mlbackends.replace_attention():
            ours: Any = F.scaled_dot_product_attention
            run = torch.compile(ours, backend="aot_eager", fullgraph=True) if way == "compiled" else ours
            found = run(*tensors, **sample.kwargs)
            last = mlbackends.last_attention()
        near = {"rtol": 0.05, "atol": 0.05} if dtype is torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close(found, wanted.to(dtype), **near)
        assert last is not None and last.backend == "flash_cpu"
        found = torch.autograd.grad(found.square().sum(), tensors)
        # torch computes these bfloat16 samples in float32 inside, which no flash attention does backward.
        if dtype is torch.float32:
            for mine, truth in zip(found, exact, strict=True):
                torch.testing.assert_close(mine, truth.float(), rtol=1e-3, atol=1e-3)
        seen += 1
    assert seen > 8


def wide(sample: Any) -> dict[str, Any]:
    """Return the options of a sample with a float mask in double precision."""
    mask = sample.kwargs.get("attn_mask")
    is_float = mask is not None and mask.is_floating_point()
    return {**sample.kwargs, "attn_mask": mask.detach().double() if is_float else mask}
