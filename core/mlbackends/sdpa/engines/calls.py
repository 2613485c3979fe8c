"""What torch's scaled_dot_product_attention does with the layers of a model, when an engine calls it."""

from collections.abc import Mapping
from typing import Any

from mlbackends.base.element_types import ITEM_BYTES
from mlbackends.model.explanation import EngineCall
from mlbackends.sdpa import explaining, rules
from mlbackends.sdpa.named_devices import NamedDevice
from mlbackends.sdpa.problem_text import Wording
from mlbackends.sdpa.rules.environment import environment_elsewhere


def called(
    call: str, facts: Mapping[str, Any], place: NamedDevice, versions: Mapping[str, str]
) -> EngineCall:
    """Return torch's choice for one prompt, with its least time and the memory of the plain formula.

    call: "sdpa", the one of torch's backends that is left to it, or "math" for the engine's own plain
    formula. facts: of a model's layers.
    """
    heads, kv_heads, tokens = facts["heads"], facts["kv_heads"], facts["tokens"]
    is_masked = facts["mask"] != "none" or (facts["window"] and tokens >= facts["window_size"])
    mask = "causal" if facts["causal"] else "none"
    if is_masked:
        mask = f"{facts['mask'] if facts['mask'] != 'none' else 'bool'}:1,1,{tokens},{tokens}"
    is_shared = kv_heads != heads and not is_masked  # with a mask, key and value are repeated before the call
    wording = Wording(
        shape=(1, heads, tokens, facts["head_size"]),
        kv_heads=kv_heads if is_shared else None,
        gqa=is_shared,
        value_dim=None if facts["value_size"] == facts["head_size"] else facts["value_size"],
        dtype=facts["dtype"],
        mask=mask,
        backward=facts["backward"],
        device=place.name,
    )
    problem = wording.problem(place.device)
    environment = environment_elsewhere(versions)
    verdicts = explaining.torch_verdicts(problem, environment) if call != "math" else ()
    verdicts = tuple(verdict for verdict in verdicts if call in ("sdpa", verdict.backend))
    chosen = next((verdict.backend for verdict in verdicts if verdict.usable), "")
    unknown = call != "math" and rules.unrecorded(problem, environment)
    is_plain = call == "math" or chosen == "MATH"
    return EngineCall(
        text=wording.text,
        torch=".".join(map(str, environment.torch)) if call != "math" else "",
        chosen="MATH" if is_plain else chosen,
        verdicts=verdicts,
        unknown_reason=f"torch's rules for {unknown} are not known" if unknown else "",
        bound=explaining.bound(problem),
        score_bytes=heads * tokens * tokens * ITEM_BYTES[facts["dtype"]] if is_plain else 0,
    )
