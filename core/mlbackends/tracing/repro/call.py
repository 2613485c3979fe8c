"""A call of oneDNN as its benchdnn sees it: tensors by role, and layouts in the words of its options.

Source: oneDNN, tests/benchdnn/doc/knobs_tag.md, knob_strides.md, knobs_encoding.md.
"""

import re

from msgspec.structs import replace

from mlbackends.base.tables import table
from mlbackends.model.signature import PrimitiveSignature
from mlbackends.tracing.formats.onednn.descriptors import MemoryDescriptor, descriptors

_STRIDES = re.compile(r"\d+(x\d+)*")
_NO_EXTRA = re.compile(r":?(f0)?(_mask\d+)?:?")


class Call:
    """A primitive, its tensors by role, and its auxiliary words by name.

    A gradient is found by the name of its tensor.
    """

    def __init__(self, signature: PrimitiveSignature) -> None:
        self.primitive = signature.primitive.removesuffix("_v2")
        self.problem = signature.problem
        self.direction = table("tracing/formats/onednn/words")["benchdnn"].get(signature.propagation, "")
        words = (word.partition(":") for word in signature.auxiliary.split())
        self.words = {name: value for name, _, value in words}
        # Reorders of 0.x call their tensors in and out.
        names = {"in": "src", "out": "dst"}
        self.tensors = [
            replace(descriptor, name=names.get(descriptor.name, descriptor.name))
            for descriptor in descriptors(signature.memory_descriptors)
            if descriptor.present
        ]

    def named(self, *roles: str) -> list[MemoryDescriptor]:
        """Return the tensors whose name begins with one of the roles, gradients last."""
        found = [tensor for tensor in self.tensors if tensor.name.removeprefix("diff_").startswith(roles)]
        return sorted(found, key=lambda tensor: tensor.name.startswith("diff_"))

    def first(self, *roles: str) -> MemoryDescriptor:
        """Return the first of these; one without type and layout if there is none."""
        return next(iter(self.named(*roles)), MemoryDescriptor(""))

    def dtype(self, *roles: str) -> str:
        """Return the element type of the first, "" if there is none."""
        return self.first(*roles).dtype

    def tag(self, *roles: str) -> str:
        """Return the layout of the first, "any" if there is none that a tag can name."""
        return tag_of(self.first(*roles))

    def layouts(self, **roles: str) -> list[str]:
        """Return the options that lay out the first tensor of each role: tags, strides, encodings.

        roles: by the option of its tag, in the order of the driver's strides.
        """
        tags, strides, encodings = [], [], []
        for option, role in roles.items():
            first = self.first(role)
            # Strides replace the tag of a plain layout that was requested.
            tag = tag_of(first)
            is_plain = tag != "any" and tag.islower()
            strides.append(first.strides if is_plain and _STRIDES.fullmatch(first.strides) else "")
            encodings.append(first.layout if first.kind == "sparse" else "")
            if not strides[-1] and not encodings[-1]:
                tags.append(f"--{option}={tag}")
        if any(strides):
            tags.append(f"--strides={':'.join(strides)}")
        if any(encodings):
            tags.append(f"--encoding={':'.join(encodings)}")
        return tags


def tag_of(tensor: MemoryDescriptor) -> str:
    """Return the requested layout: "any" where oneDNN chose it."""
    is_chosen = "a" in tensor.properties or (has_extra(tensor) and tensor.name not in {"src", "dst"})
    return "any" if is_chosen else own_tag(tensor)


def own_tag(tensor: MemoryDescriptor) -> str:
    """Return the layout that it had; drivers that take one for all tensors want no `any`."""
    return tensor.layout if tensor.layout and tensor.kind in {"blocked", ""} else "any"


def has_extra(tensor: MemoryDescriptor) -> bool:
    """Return whether a tensor has more in it than its elements; only a reorder can be given that."""
    return not _NO_EXTRA.fullmatch(tensor.flags)
