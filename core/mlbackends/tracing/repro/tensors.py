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
        # Reorders of 0.x call their tensors in and out.
        names = {"in": "src", "out": "dst"}
        self.all = [
            replace(each, name=names.get(each.name, each.name))
            for each in descriptors(text)
            if each.present
        ]

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
            first, *_ = self.named(role) or [MemoryDescriptor("")]
            # Strides stand for the tag of a plain layout that was requested.
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
    is_chosen = "a" in tensor.properties or (has_extra(tensor) and tensor.name != "dst")
    return "any" if is_chosen else own_tag(tensor)


def own_tag(tensor: MemoryDescriptor) -> str:
    """Return the layout that it had; drivers that take one for all tensors want no `any`."""
    return tensor.layout if tensor.layout and tensor.kind in {"blocked", ""} else "any"


def has_extra(tensor: MemoryDescriptor) -> bool:
    """Tell whether a tensor has more in it than its elements; only a reorder can be given that."""
    return not _NO_EXTRA.fullmatch(tensor.flags)
