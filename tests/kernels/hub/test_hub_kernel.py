"""flash_cpu as a kernel of Hugging Face's `kernels`, loaded by the real packages from a local folder."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

torch: Any = pytest.importorskip("torch")
kernels: Any = pytest.importorskip("kernels")
transformers: Any = pytest.importorskip("transformers")
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

ROOT = Path(__file__).resolve().parents[3]
NAME = "mlbackends/attention-cpu"
MODES: dict[str, dict[str, Any]] = {
    "causal": {"window": (-1, 0)},
    "window": {"window": (7, 2), "lower_right": True},
    "scale": {"scale": 0.3},
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that would be uploaded."""
    folder = tmp_path_factory.mktemp("hub")
    subprocess.run(
        [sys.executable, ROOT / "kernels" / "hub" / "build.py", folder], check=True, stdout=subprocess.DEVNULL
    )
    return folder


@pytest.fixture(scope="module")
def kernel(built: Path) -> Any:
    return kernels.get_local_kernel(built, backend="cpu")


@pytest.fixture
def attention_of_models(built: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what attn_implementation has to be; transformers then loads the kernel from the folder."""
    if torch.version.cuda:
        pytest.skip("this torch has a device kernel to choose")
    monkeypatch.setenv("LOCAL_KERNELS", f"{NAME}={built}")
    return NAME


def inputs(dtype: str, length: int = 70, keys: int = 70, heads: tuple[int, int] = (6, 2)) -> list[Any]:
    torch.manual_seed(3)
    shapes = (2, heads[0], length, 40), (2, heads[1], keys, 40), (2, heads[1], keys, 24)
    return [torch.randn(shape, dtype=getattr(torch, dtype), requires_grad=True) for shape in shapes]


def mask_of(mode: dict[str, Any], rows: int, keys: int) -> Any:
    left, right = mode.get("window", (-1, -1))
    place = torch.arange(rows)[:, None] + (keys - rows if mode.get("lower_right") else 0)
    key = torch.arange(keys)[None]
    shown = torch.ones(rows, keys, dtype=torch.bool)
    shown &= (key >= place - left) if left >= 0 else shown
    return shown & ((key <= place + right) if right >= 0 else shown)


def by_torch(tensors: list[Any], mode: dict[str, Any], mask: Any = None) -> Any:
    shown = mask_of(mode, tensors[0].shape[2], tensors[1].shape[2]) if mask is None else mask
    function = torch.nn.functional.scaled_dot_product_attention
    return function(*tensors, shown, scale=mode.get("scale"), enable_gqa=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_results_and_gradients_are_as_exact_as_torch_s(kernel: Any, dtype: str, mode: str) -> None:
    tensors = inputs(dtype, keys=81)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    grad = torch.randn(2, 6, 70, 24, dtype=tensors[0].dtype)

    outs = [
        kernel.attention(*tensors, **MODES[mode]),
        by_torch(tensors, MODES[mode]),
        by_torch(exact, MODES[mode]),
    ]
    gradients = [
        torch.autograd.grad(out, given, grad.to(out.dtype))
        for out, given in zip(outs, (tensors, tensors, exact), strict=True)
    ]

    units = 32 if dtype == "float64" else 8  # float64 is compared with another float64
    eps = torch.finfo(tensors[0].dtype).eps
    for ours, theirs, right in zip(*([o, *g] for o, g in zip(outs, gradients, strict=True)), strict=True):
        limit = 2 * (theirs - right).abs().max() + units * eps * right.abs().max()
        assert (ours - right).abs().max() <= limit


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_broadcast(kernel: Any, kind: str) -> None:
    tensors = inputs("float32")
    mask = torch.rand(2, 1, 70, 70) < 0.7 if kind == "bool" else torch.randn(70, 1)

    torch.testing.assert_close(kernel.attention(*tensors, mask), by_torch(tensors, {}, mask))


def test_large_scores_have_right_gradients(kernel: Any) -> None:
    tensors = inputs("float32")
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    found = torch.autograd.grad(kernel.attention(*tensors, scale=20.0).sum(), tensors)
    right = torch.autograd.grad(by_torch(exact, {"scale": 20.0}).sum(), exact)

    for ours, wanted in zip(found, right, strict=True):
        assert (ours - wanted).abs().max() <= 1e-4 * wanted.abs().max()


def test_it_is_an_operator_that_compiles_whole(kernel: Any) -> None:
    tensors = inputs("float32")
    operator = getattr(torch.ops, kernel._SPACE).attention
    torch.library.opcheck(operator, (*tensors, None, 1 << 60, 0, False, 0.25, True))

    compiled = torch.compile(kernel.attention, backend="aot_eager", fullgraph=True)
    out = compiled(*tensors, window=(-1, 0))

    torch.testing.assert_close(out, by_torch(tensors, MODES["causal"]))
    assert all(gradient.abs().sum() for gradient in torch.autograd.grad(out.sum(), tensors))


def test_what_is_unsupported_is_refused(kernel: Any) -> None:
    query, key, value = inputs("float32")
    with pytest.raises(ValueError, match="unsupported"):
        kernel.attention(query, key.half(), value)
    with pytest.raises(ValueError, match="unsupported"):
        kernel.attention(query, key[:, :, :, :8], value)
    with pytest.raises(ValueError, match="gradients of masks"):
        kernel.attention(query, key, value, torch.zeros(70, 70, requires_grad=True))
    for options in ({"dropout": 0.1}, {"softcap": 30.0}, {"s_aux": torch.zeros(6)}):
        with pytest.raises(ValueError, match=f"does not support {next(iter(options))}"):
            kernel.flash_attn_forward(torch.nn.Module(), query, key, value, None, **options)


def test_a_mask_of_keys_is_a_mask_of_rows_and_keys(kernel: Any) -> None:
    tensors = inputs("float32")
    padding = torch.ones(2, 70)
    padding[0, :9] = 0
    shown = padding.bool()[:, None, None] & mask_of({"window": (4, 0)}, 70, 70)

    by_keys, _ = kernel.flash_attn_forward(torch.nn.Module(), *tensors, padding, sliding_window=5)
    by_rows, _ = kernel.flash_attn_forward(torch.nn.Module(), *tensors, shown)

    assert torch.equal(by_keys, by_rows)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("kind", ["Llama", "Mistral", "Bert"])
def test_models_give_what_sdpa_gives(kind: str, padded: bool, attention_of_models: str) -> None:
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    more: dict[str, Any] = {"Llama": {"num_key_value_heads": 2}, "Bert": {}}
    more["Mistral"] = {"num_key_value_heads": 2, "sliding_window": 6}
    if kind == "Bert":
        more["Bert"] = {"attention_probs_dropout_prob": 0.0, "hidden_dropout_prob": 0.0}
    config = getattr(transformers, f"{kind}Config")(vocab_size=100, **sizes, **more[kind])
    auto = transformers.AutoModelForMaskedLM if kind == "Bert" else transformers.AutoModelForCausalLM
    tokens = torch.randint(0, 100, (2, 17), generator=torch.Generator().manual_seed(1))
    shown = torch.ones_like(tokens)
    shown[0, :5] = 0 if padded else 1

    found = {}
    for name in ("sdpa", attention_of_models):
        torch.manual_seed(0)
        model = auto.from_config(copy.deepcopy(config), attn_implementation=name)
        assert model.config._attn_implementation == name
        result = model(input_ids=tokens, attention_mask=shown, labels=tokens)
        result.loss.backward()
        logits = result.logits[shown.bool()].detach()
        gradients = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        written = None
        if kind != "Bert":
            written = model.eval().generate(tokens, attention_mask=shown, max_new_tokens=8, do_sample=False)
        found[name] = logits, gradients, written

    (wanted, wanted_gradients, text), (logits, gradients, own_text) = found.values()
    torch.testing.assert_close(logits, wanted, rtol=0, atol=2e-6)
    torch.testing.assert_close(gradients, wanted_gradients, rtol=0, atol=2e-6)
    assert text is None or torch.equal(text, own_text)


def test_the_library_needs_torch_s_stable_abi_alone(built: Path) -> None:
    (library,) = built.glob("build/torch-stable-abi29-cpu-*-linux/*.so")
    ELF = pytest.importorskip("lief").ELF  # noqa: N806

    binary = ELF.parse(library)
    assert binary is not None
    assert {*binary.libraries} <= {"libtorch_cpu.so", "libm.so.6", "libc.so.6", "libpthread.so.0"}
    undefined = [str(symbol.name) for symbol in binary.dynamic_symbols if not symbol.shndx]
    of_torch = [name for name in undefined if "torch" in name]
    assert of_torch and all(re.fullmatch(r"aoti_torch_\w+", name) for name in of_torch)
    assert not [name for name in undefined if name.startswith(("_Z", "Py"))]


def test_kernels_choose_it_for_torch_2_9_and_newer(built: Path) -> None:
    variants = kernels.variants.get_variants_local(built / "build")
    (variant,) = variants
    for version, count in (("2.8", 0), ("2.9", 1), ("2.13", 1), ("2.15", 1)):
        place = {
            "cpu": variant.arch.platform,
            "os": "linux",
            "torch_cxx11_abi": True,
            "tvm_ffi_version": None,
        }
        chosen, _ = kernels.variants._resolve_variant_for_system(
            variants, kernels.backends.CPU(), torch_version=Version(version), **place
        )
        assert len(chosen) == count
