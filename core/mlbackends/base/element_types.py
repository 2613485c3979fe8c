"""Element types of tensors: torch's names, other names for them, and the bytes of one element."""

from mlbackends.base.errors import UnknownName

#: The element types that a tensor may have, by torch's names, and the bytes of one element.
ITEM_BYTES = {
    "bool": 1,
    **{f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float8_{kind}": 1 for kind in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")},
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
}

#: The names of torch, C, Triton and oneDNN; none is near enough to its type's for a guess by spelling.
_OTHER_NAMES = {
    "half": "float16", "float": "float32", "double": "float64", "chalf": "complex32",
    "cfloat": "complex64", "cdouble": "complex128", "short": "int16", "int": "int32", "long": "int64",
    "byte": "uint8", "boolean": "bool",
    **{f"{short}{bits}": f"float{bits}" for short in ("fp", "f") for bits in (16, 32, 64)},
    **{f"{short}{bits}": f"int{bits}" for short in ("s", "i") for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "bf16": "bfloat16", "f8_e4m3": "float8_e4m3fn", "f8_e5m2": "float8_e5m2",
}  # fmt: skip
#: The first that are named where none is near.
_USUAL_TYPES = ("float32", "bfloat16", "float16", "float64")


def element_type(name: str) -> str:
    """Return torch's name of an element type: "bfloat16" for "bf16", "torch.bfloat16", "BF16".

    Raises UnknownName, with the nearest.
    """
    plain = name.lower().removeprefix("torch.")
    plain = _OTHER_NAMES.get(plain, plain)
    if plain not in ITEM_BYTES:
        usual = dict.fromkeys((*_USUAL_TYPES, *ITEM_BYTES))
        raise UnknownName("element type", name, tuple(usual))
    return plain


#: Types of 16 bits, which are computed in float32.
REDUCED = ("float16", "bfloat16")
