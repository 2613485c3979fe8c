"""Which attention backend an inference engine chooses for a model, and why not the others.

NAME.toml has the rules of one engine: `order`, the backends in the order in which it asks them, the first
row that applies; `backend`, what each supports; `refusal`, what else speaks against one; and `fact`, what
follows from the rest. A row applies to the releases from `since` and before `until`, and to the facts that
`when` describes: a value, a list of values, or a table of min, max, not, multiple, not_multiple, version and
known. A refusal without a backend speaks against all of them; a `warning` is what the engine does not refuse,
and `unknown` why it is not known whether a backend can. An order of "asked" is the backend that the user
names, and `otherwise` what speaks against all that are not in the order. `call` says that a backend calls
torch's function ("sdpa", or the one of torch's backends that it leaves to it), or is the plain formula
("math"). With `alike` all layers have one choice.
"""

import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from mlbackends.base.errors import BadInput, UnknownName, shown, some
from mlbackends.base.quantities import dotted_numbers
from mlbackends.base.reasons import Reason
from mlbackends.base.specifiers import satisfies
from mlbackends.base.tables import table
from mlbackends.base.version import __version__
from mlbackends.host.files import named_bytes
from mlbackends.libraries.cuda import cudnn_release
from mlbackends.model.explanation import ENGINE_SCHEMA, EngineExplanation, EngineLayers, EngineVerdict
from mlbackends.sdpa import named_devices
from mlbackends.sdpa.engines.calls import called
from mlbackends.sdpa.named_devices import NamedDevice
from mlbackends.sdpa.rules.environment import RECORDED, environment_elsewhere

Facts = dict[str, Any]
#: The engines whose rules are recorded.
NAMES = tuple(sorted(name[:-5] for name in os.listdir(os.path.dirname(__file__)) if name.endswith(".toml")))
#: A config.json has some kilobytes; one with tables of a quantization, up to a few megabytes.
_MOST_TEXT = 16_000_000
_QUANTIZED_CACHE = ("kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_dtype")
_Size = Annotated[int, msgspec.Meta(ge=0)]
_Count = Annotated[int, msgspec.Meta(ge=1)]


class _Config(msgspec.Struct, frozen=True):
    """What is read of a config.json."""

    architectures: Annotated[list[str], msgspec.Meta(min_length=1)]
    num_attention_heads: _Count
    num_key_value_heads: _Count | None = None
    model_type: str = ""
    hidden_size: _Size = 0
    head_dim: _Size | None = None
    dtype: str | None = None
    torch_dtype: str | None = None
    kv_lora_rank: _Size | None = None
    qk_rope_head_dim: _Size = 0
    qk_nope_head_dim: _Size = 1
    v_head_dim: _Size = 0
    index_topk: _Size | None = None
    sliding_window: int | None = None
    use_sliding_window: bool = True
    layer_types: list[str] | None = None
    attn_logit_softcapping: float | None = None
    is_causal: bool = True
    attention_dropout: float | None = None
    alibi: bool | None = None
    use_alibi: bool | None = None
    quantization_config: dict[str, Any] | None = None


def explain(
    engine: str,
    model: str,
    device: str,
    versions: Mapping[str, str] = MappingProxyType({}),
    packages: Mapping[str, str] = MappingProxyType({}),
    **given: Any,
) -> EngineExplanation:
    """Return what an engine would choose for each kind of layer of a model.

    engine: its name, or vllm==0.32 for a release; the newest one recorded without. model: a config.json of
    Hugging Face, or its folder. versions: of torch, CUDA and cuDNN, to assume. packages: what is installed
    as well, with versions, "" for any. given: kv_dtype, block_size, asked, the attention that is named,
    dtype, tokens, mask and backward. Raises BadInput and UnknownName, also for what the rules do not cover.
    """
    name, _, version = engine.replace(" ", "").partition("==")
    if name not in NAMES:
        raise UnknownName("engine", name, NAMES)
    rules = table(f"sdpa/engines/{name}.toml")
    release = _release(rules, version or (versions.get("torch", "") if name == "torch" else ""))
    place = named_devices.device(device)
    kind = place.device.kind
    capability = round(float(place.device.capability) * 10) if kind == "cuda" else 0
    if kind not in rules["kinds"] or (kind == "cuda" and capability < rules["least_capability"]):
        wanted = "an NVIDIA GPU of compute capability 7.0 or newer, such as --device h100"
        raise BadInput(
            f"{place.name}: the recorded rules of {rules['name']} are for others", f"name {wanted}"
        )
    packages = {name.lower().replace("_", "-"): value.strip() for name, value in packages.items()}
    known = tuple(rules.get("packages", ()))
    for package, value in packages.items():
        if package not in known:
            raise UnknownName(f"package in the rules of {rules['name']}", package, known)
        if value and satisfies(value, ">=0") is None:
            raise BadInput(f"{shown(value)} is not a version of {package}", f"write --with {package}==1.2.3")
    if satisfies(versions.get("cuda", "0"), ">=0") is None:
        raise BadInput(f"{shown(versions['cuda'])} is not a version of CUDA", "write it as 12.8")
    facts = {"platform": kind, "capability": capability, **given}
    facts |= {package: value or True for package, value in packages.items()}
    text = ".".join(map(str, release))
    versions = {**versions, "torch": text} if name == "torch" else versions
    found = layers(rules, release, _read(model), facts, place, versions)
    return EngineExplanation(
        ENGINE_SCHEMA,
        f"backends {__version__}",
        rules["name"],
        text,
        model,
        place.name,
        place.title,
        found,
        rules["assumed"],
        rules["source"],
    )


#: What is given besides a model, if nothing is.
_USUAL = {
    "asked": "not asked",
    "kv_dtype": "auto",
    "block_size": None,
    "tokens": 4096,
    "mask": "none",
    "backward": False,
}


def layers(
    rules: Mapping[str, Any],
    release: tuple[int, ...],
    raw: Any,
    given: Mapping[str, Any],
    place: NamedDevice | None = None,
    versions: Mapping[str, str] = MappingProxyType({}),
) -> tuple[EngineLayers, ...]:
    """Return what an engine would choose for each kind of layer.

    raw: a config.json. given: platform and capability of the device, and what `explain` is given. place: for
    what torch does on it. Raises BadInput and UnknownName.
    """
    given = {**dict.fromkeys(rules.get("packages", ()), False), **_USUAL, **given}
    kv_dtypes = tuple(rules.get("kv_dtypes", ["auto"]))
    config = _config(raw, rules, release, given)
    if given["kv_dtype"] not in kv_dtypes:
        raise UnknownName("type of a KV cache", given["kv_dtype"], kv_dtypes)
    quantized = config.quantization_config or {}
    if "kv_dtypes" in rules and given["kv_dtype"] == "auto" and any(map(quantized.get, _QUANTIZED_CACHE)):
        raise BadInput("this model states a quantized KV cache", "name its type, such as --kv-dtype fp8")
    names = [row["name"] for row in rules["backend"] if _applies(row, release, {})]
    if given["asked"] not in ("not asked", *(names if rules.get("asks") else ())):
        raise UnknownName(f"attention of {rules['name']}", given["asked"], tuple(names))
    facts = _model_facts(rules, config) | given | {"dtype_given": bool(given.get("dtype"))}
    cudnn = cudnn_release(environment_elsewhere(versions).cudnn_version)
    facts |= {"torch": versions.get("torch", RECORDED[-1]), "cudnn": versions.get("cudnn", cudnn)}
    facts |= {"cuda": versions.get("cuda", rules.get("cuda", ""))}
    found: list[EngineLayers] = []
    for kind in ("any attention",) if rules.get("alike") else _kinds(config):
        window = kind == "sliding window" and not facts["mla"]
        found += _layers(rules, release, kind, facts | {"window": window}, place, versions)
    return tuple(found)


def verdicts(rules: Mapping[str, Any], release: tuple[int, ...], facts: Facts) -> tuple[EngineVerdict, ...]:
    """Return the verdict of each backend, in the order in which the engine asks them."""
    row = next(row for row in rules["order"] if _applies(row, release, facts))
    order = [facts["asked"]] if row["backends"] == "asked" else row["backends"]
    others = [row["name"] for row in rules["backend"] if _applies(row, release, facts)]
    why = (Reason("not-asked", row["otherwise"]),) if "otherwise" in row else ()
    names = {**dict.fromkeys(order, ()), **{name: why for name in others if why and name not in order}}
    return tuple(
        EngineVerdict(
            name,
            (*reasons(rules, release, name, facts), *unasked),
            _stated(rules, "warning", release, name, facts),
            _stated(rules, "unknown", release, name, facts),
        )
        for name, unasked in names.items()
    )


def derived(rules: Mapping[str, Any], release: tuple[int, ...], facts: Facts) -> Facts:
    """Return the facts with those that follow from them."""
    facts = facts | {"major": facts["capability"] // 10}
    facts["asymmetric"] = facts["head_size"] != facts["value_size"]
    facts["widest"] = max(facts["head_size"], facts["value_size"])
    settled: set[str] = set()
    for row in rules.get("fact", ()):
        if row["name"] not in settled and _applies(row, release, facts):
            facts[row["name"]] = row["value"]
            settled.add(row["name"])
    return facts


#: What a backend may support: its key, the fact, and how the fact is called.
_LISTS = {"head_sizes": "head_size", "dtypes": "dtype", "kv_dtypes": "kv_dtype"}
_CODES = {"head_size": "head-size", "dtype": "wrong-dtype", "kv_dtype": "kv-dtype"}
_WORDS = {"head_size": "head size", "dtype": "element type", "kv_dtype": "KV cache of type"}
_FLAGS = {
    "mla": ("MLA", "it is for MLA only"),
    "sparse": ("sparse attention", "it is for sparse attention only"),
    "sinks": ("attention with sinks", ""),
    "window": ("a sliding window", ""),
}


def reasons(
    rules: Mapping[str, Any], release: tuple[int, ...], name: str, facts: Facts
) -> tuple[Reason, ...]:
    """Return all that speaks against a backend. facts: with the derived ones."""
    (row,) = (row for row in rules["backend"] if row["name"] == name)
    found = []
    for key, fact in _LISTS.items():
        if row.get(key) and facts[fact] not in row[key]:
            supported = ", ".join(map(str, row[key]))
            found.append(Reason(_CODES[fact], f"{_WORDS[fact]} {facts[fact]}; supported: {supported}"))
    block = facts["block_size"]
    if block and row.get("block_sizes") and not any(block % size == 0 for size in row["block_sizes"]):
        multiples = " or ".join(map(str, row["block_sizes"]))
        found.append(Reason("block-size", f"block size {block}; needs a multiple of {multiples}"))
    for fact in rules.get("flags", ()):
        what, only = _FLAGS[fact]
        if facts[fact] and not row.get(fact):
            found.append(Reason(fact, f"{what} is not supported"))
        elif only and row.get(fact) and not facts[fact]:
            found.append(Reason(fact, only))
    if "capability" in row and not _is(row["capability"], facts["capability"]):
        ends = (row["capability"][end] for end in ("min", "max") if end in row["capability"])
        span = " to ".join(dict.fromkeys(f"{end / 10}" for end in ends))
        at_least = "" if "max" in row["capability"] else " or newer"
        seen = facts["capability"] / 10
        found.append(Reason("wrong-capability", f"compute capability {seen}; needs {span}{at_least}"))
    return (*found, *_stated(rules, "refusal", release, name, facts))


def _stated(
    rules: Mapping[str, Any], kind: str, release: tuple[int, ...], name: str, facts: Facts
) -> tuple[Reason, ...]:
    """Return what the rows of a kind state of a backend."""
    return tuple(
        Reason(rule["code"], rule["why"])
        for rule in rules.get(kind, ())
        if name in ([named] if isinstance(named := rule.get("backend", name), str) else named)
        and _applies(rule, release, facts)
    )


def _applies(row: Mapping[str, Any], release: tuple[int, ...], facts: Facts) -> bool:
    """Return whether a row is for a release, and for these facts."""
    if release < dotted_numbers(row.get("since", "0")):
        return False
    if "until" in row and release >= dotted_numbers(row["until"]):
        return False
    return all(_is(wanted, facts[name]) for name, wanted in row.get("when", {}).items())


def _is(wanted: Any, value: Any) -> bool:
    """Return whether a value is what a condition describes; what is not known is in no range."""
    if isinstance(wanted, list):
        return value in wanted
    if not isinstance(wanted, dict):
        return bool(value == wanted)
    if "known" in wanted:
        return (value is not None) is bool(wanted["known"])
    if value in wanted.get("not", ()) or wanted.keys() == {"not"}:
        return value not in wanted["not"]
    if "version" in wanted:
        return isinstance(value, str) and bool(satisfies(value, wanted["version"]))
    if value is None:
        return False
    tests = (
        value >= wanted.get("min", value),
        value <= wanted.get("max", value),
        value % wanted.get("multiple", 1) == 0,
        "not_multiple" not in wanted or value % wanted["not_multiple"] != 0,
    )
    return all(tests)


def _release(rules: Mapping[str, Any], version: str) -> tuple[int, ...]:
    """Return the release whose rules are meant. Raises BadInput for one that is not recorded."""
    found = dotted_numbers(version or rules["releases"][-1])
    if not any(found[: len(known)] == known for known in map(dotted_numbers, rules["releases"])):
        recorded = f"recorded: {', '.join(rules['releases'])}"
        raise BadInput(f"the rules of {rules['name']} {version[:40]} are not recorded", recorded)
    return found


def _read(path: str) -> Any:
    """Return what a config.json holds. Raises BadInput."""
    file = os.path.join(path, "config.json") if os.path.isdir(path) else path
    try:
        return msgspec.json.decode(named_bytes(file, _MOST_TEXT, "config.json of a model"))
    except msgspec.DecodeError as error:
        raise BadInput(f"{file} is not the config.json of a model: {error}") from error


def _config(
    raw: Any, rules: Mapping[str, Any], release: tuple[int, ...], given: Mapping[str, Any]
) -> _Config:
    """Return a model's configuration. Raises BadInput, for one that the rules do not cover as well."""
    if isinstance(raw, dict):
        raw = (
            rules.get("usual", {})
            | raw
            | {ours: raw[theirs] for ours, theirs in rules.get("keys", {}).items() if theirs in raw}
        )
        raw |= {"dtype": given["dtype"]} if given.get("dtype") else {}
        if isinstance(raw.get("architectures"), str):
            raw["architectures"] = [raw["architectures"]]
        inner = next((key for key in ("text_config", "llm_config") if isinstance(raw.get(key), dict)), "")
        if inner and "num_attention_heads" not in raw:
            raise BadInput(
                f"the language model of this config.json is in its {inner}, and which attention "
                f"{rules['name']} chooses for a model of several parts is not recorded",
                f"write {inner} to a file, and add dtype and the language model's architectures",
            )
        if "_class_name" in raw and "architectures" not in raw:
            raise BadInput("this is the config.json of a model of diffusers", "ask with --engine diffusers")
    try:
        config = msgspec.convert(raw, _Config)
    except msgspec.ValidationError as error:
        raise BadInput(f"this is not the config.json of a model: {error}") from error
    name = config.architectures[0]
    own = next(
        (key for key in rules.get("unknown_with", ()) if raw.get(key)),
        "" if config.is_causal or "architectures" not in rules else "is_causal",
    )
    known = rules.get("architectures", {name: "0"})
    is_there = name in known and (isinstance(known, list) or release >= dotted_numbers(known[name]))
    if not is_there or own:
        why = f"{rules['name']}'s choice for {name}{f' with {own}' if own else ''} is not recorded"
        raise BadInput(f"{why}: it may follow rules of its own", f"recorded: {some(tuple(known))}")
    lacking = "" if config.dtype or config.torch_dtype else "dtype"
    if config.index_topk is None and name in rules.get("need_index_topk", ()):
        lacking = "index_topk"
    if not config.head_dim and (
        name in rules.get("need_head_dim", ()) or config.hidden_size < config.num_attention_heads
    ):
        lacking = "head_dim"
    if config.kv_lora_rank and rules.get("need_v_head_dim") and not config.v_head_dim:
        lacking = "v_head_dim"
    if lacking:
        hint = f"add {lacking} to it{', or pass --dtype' if lacking == 'dtype' else ''}"
        raise BadInput(f"config.json has no {lacking}, and what is assumed then is not recorded", hint)
    return config


def _model_facts(rules: Mapping[str, Any], config: _Config) -> Facts:
    """Return the facts that a configuration states. Raises UnknownName."""
    rank = config.kv_lora_rank or 0
    mla = config.model_type in rules.get("mla_types", ()) and bool(rank)
    head_size = config.head_dim or config.hidden_size // config.num_attention_heads
    value_size = config.v_head_dim or head_size
    if rank and "mla_types" not in rules:  # MLA is expanded to attention with many heads
        head_size, value_size = config.qk_nope_head_dim + config.qk_rope_head_dim, config.v_head_dim
    dtype = config.dtype or config.torch_dtype or ""
    if dtype not in rules["dtypes"]:
        raise UnknownName("element type of a model", dtype, tuple(rules["dtypes"]))
    return {
        "architecture": config.architectures[0],
        "heads": config.num_attention_heads,
        "kv_heads": config.num_key_value_heads or config.num_attention_heads,
        "head_size": rank + config.qk_rope_head_dim if mla else head_size,
        "value_size": value_size,
        "shared_heads": (config.num_key_value_heads or config.num_attention_heads)
        != config.num_attention_heads,
        "dtype": dtype,
        "causal": config.is_causal and rules.get("causal", True),
        "window_size": config.sliding_window or 0,
        "dropout": bool(config.attention_dropout),
        "alibi": bool(config.alibi or config.use_alibi),
        "mla": mla,
        "sparse": mla and config.index_topk is not None,
        "sinks": config.architectures[0] in rules.get("with_sinks", ()),
        "softcap": bool(config.attn_logit_softcapping),
        "kv_lora_rank": rank,
        "qk_rope_head_dim": config.qk_rope_head_dim,
        "qk_nope_head_dim": config.qk_nope_head_dim,
        "v_head_dim": config.v_head_dim,
        "index_topk": config.index_topk,
    }


def _kinds(config: _Config) -> tuple[str, ...]:
    """Return the kinds of layers: with a sliding window, and with full attention."""
    slides = config.sliding_window and config.use_sliding_window
    types = config.layer_types or ["sliding_attention" if slides else "full_attention"]
    return tuple(
        dict.fromkeys("sliding window" if kind == "sliding_attention" else "full attention" for kind in types)
    )


def _layers(
    rules: Mapping[str, Any],
    release: tuple[int, ...],
    kind: str,
    facts: Facts,
    place: NamedDevice | None,
    versions: Mapping[str, str],
) -> Iterator[EngineLayers]:
    """Yield the verdicts on one kind of layers, and first those of torch itself where it is the engine."""
    facts = derived(rules, release, facts)
    found = verdicts(rules, release, facts)
    first = next((verdict for verdict in found if not verdict.reasons), EngineVerdict(""))
    unknown = "; ".join(f"{first.backend}: {reason.message}" for reason in first.undecided)
    chosen = "" if unknown else first.backend
    shown = {name: facts[name] for name in rules["shown"]}
    calls = {row["name"]: row["call"] for row in rules["backend"] if "call" in row}
    if "function" in rules and place:
        call = called("sdpa", facts, place, versions)
        theirs = tuple(EngineVerdict(verdict.backend, verdict.reasons) for verdict in call.verdicts)
        yield EngineLayers(f"{kind} by scaled_dot_product_attention", call.chosen, shown, theirs, call)
        kind = f"{kind} by {rules['function']}"
    call_of = called(calls[chosen], facts, place, versions) if chosen in calls and place else None
    yield EngineLayers(kind, chosen, shown, found, call_of, unknown)
