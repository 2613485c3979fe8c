"""Memory descriptors: what oneDNN's lines contain about each tensor except its sizes.

    fsrc:nChw8c                     MKL-DNN 0.x: name and format, no element type
    src_f32::blocked:aBcd16b:f0     1.0 to 3.5, and gemm_api in all later versions
    src:f32:a:blocked:acdb::f0      3.6 on; the field before the flags holds strides since 3.2
    in0_f32:1:strided:variable:1x8x256x64:131072s16384s64s1         graphs, with sizes

The style is recognised line by line: gemm_api keeps the old one in logs of new versions.
"""

import re
from functools import lru_cache

from msgspec import Struct

from mlbackends.base.tables import table

#: The bytes of one element, by oneDNN's names (dnnl_dt2str); OpenVINO's fork adds bin, nf4, u2.
ELEMENT_BYTES: dict[str, float] = table("tracing/formats/onednn/words")["element_bytes"]
_TYPES = frozenset({*ELEMENT_BYTES, "undef"})
#: A name with its element type, such as "diff_dst_f8_e4m3".
_TYPED = re.compile(rf"(.*)_({'|'.join(_TYPES)})")


class MemoryDescriptor(Struct, frozen=True):
    """One tensor of a call; "" for what the line lacks.

    properties: "a" given as `any`, "p" padded, "o" padded offsets, "0" an offset. kind: "blocked",
    "any", "undef", "sparse", ... layout: the tag, such as "aBcd16b". strides: as printed.
    flags: what the memory carries besides, such as "f0" or "f1:s8m3". shape: in graphs alone.
    """

    name: str
    dtype: str = ""
    properties: str = ""
    kind: str = ""
    layout: str = ""
    strides: str = ""
    flags: str = ""
    shape: str = ""

    @property
    def present(self) -> bool:
        """Whether there is such a tensor: a convolution without bias prints one that is not."""
        return self.dtype != "undef" and self.kind != "undef" and self.layout != "undef"


@lru_cache(maxsize=4096)
def descriptors(text: str) -> tuple[MemoryDescriptor, ...]:
    """Return the tensors in a line's field of memory descriptors, in its order."""
    return tuple(_one(part) for part in text.split() if ":" in part)


def _one(text: str) -> MemoryDescriptor:
    name, *rest = text.split(":")
    if typed := _TYPED.fullmatch(name):
        name, dtype = typed.groups()
        if len(rest) > 2 and rest[1] in {"strided", "opaque", "any", "undef"}:
            _, kind, properties, shape, strides = [*rest, "", ""][:5]
            return MemoryDescriptor(name, dtype, properties, kind, strides=strides, shape=shape)
    elif name in _TYPES:  # padding on a GPU, up to 3.5
        name, dtype = "data", name
    elif rest[0] in _TYPES:
        dtype, *rest = rest
    else:  # 0.x prints "fsrc:nchw", and of a reorder "in:f32_nchw"
        whole = ":".join(rest)
        dtype, _, layout = whole.partition("_")
        if dtype in ELEMENT_BYTES:
            return MemoryDescriptor(name, dtype, layout=layout)
        return MemoryDescriptor(name.removeprefix("f"), layout=whole)
    properties, kind, layout, *more = [*rest, "", "", ""][: max(len(rest), 3)]
    strides = more.pop(0) if more and not more[0].startswith("f") else ""
    return MemoryDescriptor(name, dtype, properties, kind, layout, strides, ":".join(more))
