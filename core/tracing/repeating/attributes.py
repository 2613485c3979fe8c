"""Attributes as oneDNN prints them, in the words of benchdnn's options.

    attr-post-ops:sum+eltwise_relu:0.5+binary_add:f32:2     --attr-post-ops=sum+relu:0.5+add:f32:2
    attr-scales:src0:0:f32+wei:2:f32                        --attr-scales=src:common:0.5+wei:per_dim_1
    post_ops:'sum;eltwise_relu;'                            1.x to 2.4

Values of scales and zero points are given when a primitive runs, and stand in no line.
Source: oneDNN, tests/benchdnn/doc/knobs_attr.md.
"""

import re

_POLICIES = {"0": "common", "1": "per_dim_0", "2": "per_dim_1", "3": "per_dim_01", "4": "per_dim_2"}
_POLICIES |= {"8": "per_dim_3", "12": "per_dim_23", "15": "per_tensor"}
_QUOTED = re.compile(r"(post_ops|oscale|scales|zero_points|src_zp|dst_zp):'?([^' ]*)'?")
_PLAIN = frozenset(
    {"fpmath", "acc-mode", "deterministic", "scratchpad", "dropout", "rounding-mode"}
)


def options(text: str) -> tuple[list[str], list[str]]:
    """Return benchdnn's options for the field of attributes, and notes on what they cannot tell."""
    told: list[str] = []
    notes: list[str] = []
    for word in text.split():
        name, colon, value = word.removeprefix("attr-").partition(":")
        old = _QUOTED.fullmatch(word)
        if not colon:
            notes.append(f"the attribute {word!r} has no option in benchdnn")
        elif name == "post-ops":
            told.append(f"--attr-post-ops={_post_operations(value.split('+'))}")
        elif old is not None and name == "post_ops":
            told.append(f"--attr-post-ops={_post_operations(old[2].split(';'))}")
        elif name in {"scales", "zero-points"} and old is None:
            told.append(f"--attr-{name}={_scales(name, value)}")
            notes.append(
                f"the values of {name} are not told: 0.5 and 1 stand for those of `common`"
            )
        elif name == "scales":
            told.append(f"--attr-scales={_scales(name, value)}")
            notes.append("the values of scales are not told: 0.5 stands for those of `common`")
        elif name in _PLAIN:
            told.append(f"--attr-{name}={value}")
        else:
            notes.append(f"the attribute {word!r} has no option in benchdnn that is known here")
    return told, list(dict.fromkeys(notes))


def _post_operations(parts: list[str]) -> str:
    return "+".join(_post_operation(part) for part in parts if part)


def _post_operation(text: str) -> str:
    name, *arguments = text.split(":")
    for prefix in ("eltwise_", "binary_"):
        name = name.removeprefix(prefix)
    return ":".join([name, *arguments])


def _scales(name: str, text: str) -> str:
    told = []
    for part in text.split("+"):
        argument, mask, *rest = [*part.split(":"), "0"][: max(2, part.count(":") + 1)]
        policy = _POLICIES.get(mask, f"per_mask_{mask}")
        argument = "src" if argument == "src0" else argument
        value = []
        if policy == "common":
            value = ["0.5"] if name == "scales" else ["1"]
        types = [word for word in rest if word and not word[0].isdecimal()]
        groups = [word for word in rest if word and word[0].isdecimal()]
        told.append(":".join([argument, policy, *value, *types, *groups]))
    return "+".join(told)
