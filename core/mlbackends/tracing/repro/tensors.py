"""The tensors of a call by role, and their layouts in the words of benchdnn's options.

Source: oneDNN, tests/benchdnn/doc/knobs_tag.md, knob_strides.md, knobs_encoding.md.
"""

import re

from msgspec.structs import replace

from mlbackends.tracing.formats.onednn.descriptors import MemoryDescriptor, descriptors

_STRIDES = re.compile(r"\d+(x\d+)*")
_NO_EXTRA = re.compile(r":?(f0)?(_mask\d+)?:?")


class Tensors:
    """The tensors of a call by role; gradients stand for what they are the gradient of."""

    def __init__(self, text: str) -> None:
        self.all = [_named_as_today(each) for each in descriptors(text) if each.present]

    def named(self, *roles: str) -> list[MemoryDescriptor]:
        """Return those whose name begins with one of the roles, those that are no gradients first."""
        found = [each for each in self.all if each.name.removeprefix("diff_").startswith(roles)]
        return sorted(found, key=lambda each: each.name.startswith("diff_"))

    def dtype(self, *roles: str) -> str:
        """Return the element type of the first, "" if there is none."""
        found = self.named(*roles)
        return found[0].dtype if found else ""

    def tag(self, *roles: str) -> str:
        """Return the layout of the first, "any" if there is none that a tag can name."""
        found = self.named(*roles)
        return tag_of(found[0]) if found else "any"

    def layouts(self, **roles: str) -> list[str]:
        """Return the options that lay out the first tensor of each role: tags, strides, encodings.

        roles: by the option of its tag, in the order of the driver's strides.
        """
        tags, strides, encodings = [], [], []
        for option, role in roles.items():
            first = next(iter(self.named(role)), None)
            has_strides = first is not None and _has_strides(first)
            is_sparse = first is not None and first.kind == "sparse"
            strides.append(first.strides if first and has_strides else "")
            encodings.append(first.layout if first and is_sparse else "")
            if not has_strides and not is_sparse:
                tags.append(f"--{option}={self.tag(role)}")
        if any(strides):
            tags.append(f"--strides={':'.join(strides)}")
        if any(encodings):
            tags.append(f"--encoding={':'.join(encodings)}")
        return tags


def _named_as_today(tensor: MemoryDescriptor) -> MemoryDescriptor:
    """Reorders of 0.x call their tensors in and out."""
    name = {"in": "src", "out": "dst"}.get(tensor.name)
    return replace(tensor, name=name) if name else tensor


def tag_of(tensor: MemoryDescriptor) -> str:
    """Return the requested layout: "any" where oneDNN chose it."""
    is_chosen = "a" in tensor.properties or (has_extra(tensor) and tensor.name != "dst")
    return "any" if is_chosen else own_tag(tensor)


def own_tag(tensor: MemoryDescriptor) -> str:
    """Return the layout that it had; drivers that take one for all tensors want no `any`."""
    return tensor.layout if tensor.layout and tensor.kind in {"blocked", ""} else "any"


def has_extra(tensor: MemoryDescriptor) -> bool:
    """Tell whether a tensor has more in it than its elements; only a reorder can be given that."""
    return not _NO_EXTRA.fullmatch(tensor.flags)


def _has_strides(tensor: MemoryDescriptor) -> bool:
    """Tell whether strides can stand for the tag: the layout is a plain one that was requested."""
    tag = tag_of(tensor)
    return bool(_STRIDES.fullmatch(tensor.strides)) and tag != "any" and tag.islower()
