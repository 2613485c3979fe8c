"""Peers on torch's tensors are called as their documentation says, and give attention's result.

Modules that stand for flash_attn, xformers and flashinfer have the signatures of the real ones, written down
from their documentation, and compute with torch on the CPU. No GPU and none of the libraries is needed.
"""

from __future__ import annotations

import inspect
import json
import runpy
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from mlbackends.model.records import Device
from mlbackends.sdpa.problem_text import parse
from mlbackends_kernels.checking import program
from mlbackends_kernels.checking.values import responder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

torch: Any = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


def attended(query: Any, key: Any, value: Any, scale: Any, causal: str = "", left: int = -1) -> Any:
    """Return attention of (B, L, H, E). causal: the corner in which the mask ends or begins.

    left: how many keys before its own a row sees, -1 for all.
    """
    query, key, value = (tensor.transpose(1, 2) for tensor in (query, key, value))
    groups = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(groups, 1) for tensor in (key, value))
    rows, keys = query.shape[2], key.shape[2]
    mask = None
    if causal:
        mask = torch.ones(rows, keys, dtype=torch.bool)
        shift = keys - rows if causal == "lower right" else 0
        mask = mask.tril(shift)
        mask = mask if left < 0 else mask.triu(shift - left)
    function = torch.nn.functional.scaled_dot_product_attention
    return function(query, key, value, mask, scale=scale).transpose(1, 2)


#: What the real functions take, as their documentation has it.
SIGNATURES = {
    "flash_attn.flash_attn_func": "q, k, v, dropout_p=0.0, softmax_scale=None, causal=False,"
    " window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False",
    "flash_attn_interface.flash_attn_func": "q, k, v, softmax_scale=None, causal=False, qv=None,"
    " q_descale=None, k_descale=None, v_descale=None, window_size=(-1, -1), attention_chunk=0, softcap=0.0,"
    " num_splits=1, pack_gqa=None, deterministic=False, sm_margin=0, return_attn_probs=False",
    "flash_attn.cute.flash_attn_func": "q, k, v, qv=None, gather_kv_indices=None, softmax_scale=None,"
    " causal=False, window_size=(None, None), learnable_sink=None, softcap=0.0, num_splits=1, pack_gqa=None,"
    " deterministic=False, score_mod=None, score_mod_bwd=None, mask_mod=None, aux_tensors=None,"
    " return_lse=False",
    "xformers.ops.memory_efficient_attention": "query, key, value, attn_bias=None, p=0.0, scale=None, *,"
    " op=None, output_dtype=None",
    "ragged": "float_workspace_buffer, kv_layout='NHD', use_cuda_graph=False, qo_indptr_buf=None",
    "ragged.plan": "qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo=None,"
    " custom_mask=None, packed_custom_mask=None, causal=False, pos_encoding_mode='NONE',"
    " use_fp16_qk_reduction=False, window_left=-1, logits_soft_cap=None, sm_scale=None, rope_scale=None,"
    " rope_theta=None, q_data_type='float16', kv_data_type=None",
    "paged": "float_workspace_buffer, kv_layout='NHD', use_cuda_graph=False, use_tensor_cores=False",
    "paged.plan": "indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,"
    " pos_encoding_mode='NONE', window_left=-1, logits_soft_cap=None, q_data_type='float16',"
    " kv_data_type=None, data_type=None, sm_scale=None",
}


def bound(name: str, *given: Any, **named: Any) -> dict[str, Any]:
    """Return the arguments of a call by name. Raises TypeError for what the real function does not take."""
    found = inspect.signature(eval(f"lambda {SIGNATURES[name]}: None")).bind(*given, **named)
    found.apply_defaults()
    return found.arguments


def flash(name: str, every: Any, **expected: Any) -> Any:
    """Return a flash_attn_func that sees keys without a window if it is given `every`."""

    def called(*given: Any, **named: Any) -> Any:
        found = bound(name, *given, **named)
        left, right = found["window_size"]
        assert right == every and found["softcap"] == 0.0
        assert all(found[key] == value for key, value in expected.items())
        corner = "lower right" if found["causal"] else ""
        tensors = found["q"], found["k"], found["v"]
        left = -1 if left == every else left
        result = attended(*tensors, found["softmax_scale"], corner, left)
        return (result, None) if "cute" in name else result

    return called


class UpperLeft:
    """LowerTriangularMask of xformers.ops.fmha.attn_bias."""

    corner = "upper left"


class LowerRight:
    """LowerTriangularFromBottomRightMask."""

    corner = "lower right"


def memory_efficient_attention(*given: Any, **named: Any) -> Any:
    """Take (B, M, H, K), or (B, M, G, H, K) where heads share keys."""
    found = bound("xformers.ops.memory_efficient_attention", *given, **named)
    tensors: Any = [found[name] for name in ("query", "key", "value")]
    bias, scale, shape = found["attn_bias"], found["scale"], tensors[0].shape
    assert found["p"] == 0.0
    if tensors[0].ndim == 5:
        assert tensors[1].stride(3) == tensors[2].stride(3) == 0  # one head, repeated
        tensors = [tensor.flatten(2, 3) for tensor in tensors]
    if torch.is_tensor(bias):
        query, key, value = (tensor.transpose(1, 2) for tensor in tensors)
        assert bias.shape == (*query.shape[:3], key.shape[2])
        function = torch.nn.functional.scaled_dot_product_attention
        result = function(query, key, value, bias, scale=scale).transpose(1, 2)
    else:
        query, key, value = tensors
        result = attended(query, key, value, scale, getattr(bias, "corner", ""))
    return result.reshape(*shape[:-1], -1)


class Ragged:
    """BatchPrefillWithRaggedKVCacheWrapper: rows of all sequences, one after another."""

    def __init__(self, *given: Any, **named: Any) -> None:
        found = bound("ragged", *given, **named)
        assert found["float_workspace_buffer"].dtype == torch.uint8

    def plan(self, *given: Any, **named: Any) -> None:
        self.planned = bound("ragged.plan", *given, **named)
        assert self.planned["qo_indptr"].dtype == self.planned["kv_indptr"].dtype == torch.int32

    def run(self, q: Any, k: Any, v: Any) -> Any:
        plan = self.planned
        assert (q.shape[1], k.shape[1]) == (plan["num_qo_heads"], plan["num_kv_heads"])
        rows, keys = plan["qo_indptr"].tolist(), plan["kv_indptr"].tolist()
        assert len(v) == keys[-1]
        parts = []
        for at in range(len(rows) - 1):
            own, others = slice(rows[at], rows[at + 1]), slice(keys[at], keys[at + 1])
            tensors = q[own][None], k[others][None], v[others][None]
            corner = "lower right" if plan["causal"] else ""
            parts.append(attended(*tensors, plan["sm_scale"], corner)[0])
        return torch.cat(parts)


class Paged:
    """BatchDecodeWithPagedKVCacheWrapper: one row of each sequence, keys in pages."""

    def __init__(self, *given: Any, **named: Any) -> None:
        bound("paged", *given, **named)

    def plan(self, *given: Any, **named: Any) -> None:
        self.planned = plan = bound("paged.plan", *given, **named)
        assert plan["last_page_len"].tolist() == [plan["page_size"]] * (len(plan["indptr"]) - 1)
        assert plan["indices"].dtype == plan["indptr"].dtype == torch.int32

    def run(self, q: Any, paged_kv_cache: Any) -> Any:
        plan, parts = self.planned, []
        starts = plan["indptr"].tolist()
        page = plan["page_size"], plan["num_kv_heads"], plan["head_dim"]
        assert paged_kv_cache[0].shape[1:] == page
        for at, row in enumerate(q):
            pages = plan["indices"][starts[at] : starts[at + 1]]
            key, value = (cache[pages].flatten(0, 1)[None] for cache in paged_kv_cache)
            parts.append(attended(row[None, None], key, value, plan["sm_scale"])[0])
        return torch.cat(parts)


FLASHES = {
    "flash_attn": flash("flash_attn.flash_attn_func", -1, dropout_p=0.0),
    "flash_attn_interface": flash("flash_attn_interface.flash_attn_func", -1, num_splits=0),
    "flash_attn.cute": flash("flash_attn.cute.flash_attn_func", None),
}
MODULES: dict[str, dict[str, Any]] = {
    **{name: {"flash_attn_func": function} for name, function in FLASHES.items()},
    "xformers": {},
    "xformers.ops": {"memory_efficient_attention": memory_efficient_attention},
    "xformers.ops.fmha": {},
    "xformers.ops.fmha.attn_bias": {
        "LowerTriangularMask": UpperLeft,
        "LowerTriangularFromBottomRightMask": LowerRight,
    },
    "flashinfer": {
        "BatchPrefillWithRaggedKVCacheWrapper": Ragged,
        "BatchDecodeWithPagedKVCacheWrapper": Paged,
    },
}


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Return what answers requests for a peer, beside modules that stand for the libraries."""
    for name, functions in MODULES.items():
        module = ModuleType(name)
        vars(module).update(functions)
        monkeypatch.setitem(sys.modules, name, module)

    def answering_for(name: str) -> Any:
        made = SimpleNamespace(**runpy.run_path(program("torch_libraries_program")))
        return made.serving.responder(made.PROGRAMS[name])

    return answering_for


def judged(answer: Any, words: str, folder: Path) -> dict[str, Any]:
    """Return how far what a peer computes is from float64, by the name of the tensor."""
    (wording,) = parse(words)
    problem = wording.problem(Device("cpu", 0))
    plain = json.loads(msgspec.json.encode(problem))
    values, path = responder(), str(folder / "result.bin")
    made = values({"do": "prepare", "problem": plain, "folder": str(folder), "seed": 0})
    answer({"do": "prepare", "problem": plain, **made})
    answer({"do": "compute", "into": path})
    assert answer({"do": "time", "seconds": 1e-6, "calls": 1})["seconds"]
    judgement: dict[str, Any] = values({"do": "judge", "path": path, "tolerance": 3.0})
    return judgement


SHAPE = "--shape 2,4,9,16 --dtype float16 "
FLASH = ("", "--layout bshd", "--causal", "--kv-heads 2 --gqa", "--kv-len 20 --mask lower-right")
CASES = {
    **dict.fromkeys(
        ("flash_attn_2", "flash_attn_3", "flash_attn_4"),
        (*FLASH, "--backward", "--causal --window 3,-1"),
    ),
    "xformers": (
        *FLASH,
        "--kv-len 20 --causal",
        "--mask float",
        "--mask float:2,1,9,9",
        "--backward",
    ),
    "flashinfer": (*FLASH, "--kv-len 20", "--value-dim 8"),
}


@pytest.mark.parametrize(
    ("name", "words"), [(name, words) for name, cases in CASES.items() for words in cases]
)
def test_a_library_is_called_as_it_is_documented(
    name: str, words: str, answers: Callable[[str], Any], tmp_path: Path
) -> None:
    for tensor, errors in judged(answers(name), SHAPE + words, tmp_path).items():
        assert errors["largest_absolute"] <= errors["largest_allowed"], tensor
        assert not errors["misplaced"]


DECODED = Paged.run


@pytest.mark.parametrize("keys", [48, 50])
def test_one_row_over_a_cache_is_decoded_in_pages_where_they_fit(
    keys: int, answers: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Any] = []

    def run(self: Paged, *given: Any) -> Any:
        used.append(self)
        return DECODED(self, *given)

    monkeypatch.setattr(Paged, "run", run)
    words = f"--shape 2,4,1,16 --kv-len {keys} --kv-heads 2 --gqa --dtype float16 --layout bshd"
    errors = judged(answers("flashinfer"), words, tmp_path)[""]

    assert errors["largest_absolute"] <= errors["largest_allowed"]
    assert bool(used) == (keys % 16 == 0)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("words", ["", "--causal", "--kv-heads 2 --gqa", "--kv-len 20 --mask lower-right"])
def test_flex_takes_masks_as_functions_of_positions(
    words: str, answers: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        torch, "compile", lambda function=None, **_: function or (lambda inner: inner)
    )  # that takes seconds, and a compiler
    errors = judged(answers("flex"), "--shape 2,4,9,16 " + words, tmp_path)[""]

    assert errors["largest_absolute"] <= errors["largest_allowed"]


def test_a_library_that_is_not_there_is_refused_by_name(answers: Callable[[str], Any]) -> None:
    answer = answers("flash_attn_3")
    del sys.modules["flash_attn_interface"].flash_attn_func
    (wording,) = parse(SHAPE)
    plain = json.loads(msgspec.json.encode(wording.problem(Device("cpu", 0))))
    with pytest.raises(Exception, match="flash_attn_interface has no flash_attn_func"):
        answer({"do": "prepare", "problem": plain, "files": {}})


def test_a_torch_without_cuda_is_refused(answers: Callable[[str], Any], tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this torch has a device")
    (wording,) = parse(SHAPE)
    plain = json.loads(msgspec.json.encode(wording.problem(Device("cuda", 0, capability="9.0"))))
    with pytest.raises(Exception, match="sees no CUDA device"):
        answers("xformers")({"do": "prepare", "problem": plain, "files": {}})


@pytest.mark.parametrize("name", FLASHES)
def test_a_signature_is_that_of_the_package_where_it_is_installed(name: str) -> None:
    real = set(inspect.signature(pytest.importorskip(name).flash_attn_func).parameters)
    assert {"softmax_scale", "causal", "window_size", "softcap"} <= real
    written = inspect.signature(eval(f"lambda {SIGNATURES[f'{name}.flash_attn_func']}: None"))
    assert set(written.parameters) <= real
