"""The types of elements: how DLPack, the array interface and NVIDIA's libraries write them.

Source: DLPack, DLDataTypeCode; the CUDA Array Interface, version 3; library_types.h, cudaDataType.
"""

from typing import NamedTuple


class ElementType(NamedTuple):
    """dlpack: code and bits. typestr: "" where the array interface has no word for it."""

    name: str
    itemsize: int
    dlpack: tuple[int, int]
    typestr: str
    cuda: int


ELEMENT_TYPES = {
    each.name: each
    for each in (
        ElementType("float16", 2, (2, 16), "<f2", 2),
        ElementType("bfloat16", 2, (4, 16), "", 14),
        ElementType("float32", 4, (2, 32), "<f4", 0),
        ElementType("float64", 8, (2, 64), "<f8", 1),
        ElementType("complex64", 8, (5, 64), "<c8", 4),
        ElementType("complex128", 16, (5, 128), "<c16", 5),
    )
}
_BY_DLPACK = {each.dlpack: each.name for each in ELEMENT_TYPES.values()}
_BY_TYPESTR = {each.typestr: each.name for each in ELEMENT_TYPES.values() if each.typestr}
_KNOWN = ", ".join(ELEMENT_TYPES)


def named_by_dlpack(code: int, bits: int, lanes: int) -> str:
    """Return the name of DLPack's type. Raises TypeError for one that nothing here computes with."""
    if lanes != 1 or (code, bits) not in _BY_DLPACK:
        raise TypeError(f"DLPack type {code} of {bits} bits x {lanes} is not one of {_KNOWN}")
    return _BY_DLPACK[code, bits]


def named_by_typestr(typestr: str) -> str:
    """Return the name of the array interface's type. Raises TypeError for any other."""
    if typestr not in _BY_TYPESTR:
        raise TypeError(f"elements of type {typestr!r} are not one of {_KNOWN}")
    return _BY_TYPESTR[typestr]
