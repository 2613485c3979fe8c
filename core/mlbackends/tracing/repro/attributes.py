"""Attributes as oneDNN prints them, in the words of benchdnn's options.

    attr-post-ops:sum+eltwise_relu:0.5+binary_add:f32:2     --attr-post-ops=sum+relu:0.5+add:f32:2
    attr-scales:src0:0:f32+wei:2:f32                        --attr-scales=src:common:0.5+wei:per_dim_1
    post_ops:'sum;eltwise_relu;'                            1.x to 2.4

Values of scales and zero points are given when a primitive runs, and stand in no line.
Source: oneDNN, tests/benchdnn/doc/knobs_attr.md.
"""

import re

_POLICIES = {
    0: "common",
    1: "per_dim_0",
    2: "per_dim_1",
    3: "per_dim_01",
    4: "per_dim_2",
    8: "per_dim_3",
}
_QUOTED = re.compile(r"(post_ops|oscale|scales|zero_points|src_zp|dst_zp):'?([^' ]*)'?")
_PLAIN = frozenset(
    {"fpmath", "acc-mode", "deterministic", "scratchpad", "dropout", "rounding-mode"}
)


def attribute_options(text: str, dimensions: int = 0) -> tuple[list[str], list[str]]:
    """Return benchdnn's options for the field of attributes, and notes on what they cannot tell.

    dimensions: how many the tensors of a matmul have, whose masks may be of the last two; else 0.
    """
    options: list[str] = []
    notes: list[str] = []
    for word in text.split():
        name, colon, value = word.removeprefix("attr-").partition(":")
        old = _QUOTED.fullmatch(word)
        if not colon:
            notes.append(f"the attribute {word!r} has no option in benchdnn")
        elif name == "post-ops":
            options.append(f"--attr-post-ops={_post_operations(value.split('+'))}")
        elif old is not None and name == "post_ops":
            options.append(f"--attr-post-ops={_post_operations(old[2].split(';'))}")
        elif name in {"scales", "zero-points"} and (old is None or name == "scales"):
            found, unknown = _scales(name, value, dimensions)
            if found:
                options.append(f"--attr-{name}={found}")
            stand_in = "0.5 stands" if name == "scales" else "1 stands"
            notes.append(f"the values of {name} are not options: {stand_in} for that of `common`")
            notes += [f"benchdnn has no word for the mask of {name} in {part}" for part in unknown]
        elif name in _PLAIN:
            options.append(f"--attr-{name}={value}")
        else:
            notes.append(f"the attribute {word!r} has no option in benchdnn that is known here")
    return options, list(dict.fromkeys(notes))


def _post_operations(parts: list[str]) -> str:
    return "+".join(_post_operation(part) for part in parts if part)


def _post_operation(text: str) -> str:
    name, *arguments = text.split(":")
    for prefix in ("eltwise_", "binary_"):
        name = name.removeprefix(prefix)
    return ":".join([name, *arguments])


def _scales(name: str, text: str, dimensions: int) -> tuple[str, list[str]]:
    """Return the value of an option, and the parts that it has no words for."""
    options = []
    unknown = []
    for part in text.split("+"):
        argument, mask, *rest = [*part.split(":"), "0"][: max(2, part.count(":") + 1)]
        argument = "src" if argument == "src0" else argument
        policy = _policy(mask, argument, dimensions)
        if not policy:
            unknown.append(part)
            continue
        value = []
        if policy == "common":
            value = ["0.5"] if name == "scales" else ["1"]
        types = [word for word in rest if word and not word[0].isdecimal()]
        groups = [word for word in rest if word and word[0].isdecimal()]
        options.append(":".join([argument, policy, *value, *types, *groups]))
    return "+".join(options), unknown


def _policy(mask: str, argument: str, dimensions: int) -> str:
    """Return the word for the dimensions along which values differ, "" if there is none."""
    number = int(mask) if mask.isdecimal() else -1
    if dimensions > 2 and argument == "wei" and number == 3 << (dimensions - 2):
        return "per_ocic"
    if dimensions > 2 and number == (1 << dimensions) - 1:
        return "per_tensor"
    return _POLICIES.get(number, "")
