"""What a program chose beyond operation, sizes and element types: calls that differ in it are two.

    bia bwd_w                       oneDNN: whether there is a bias, and the direction
    clip beta:6 fwd_i               the algorithm and its numbers
    abcd->aBcd16b                   of a reorder, both layouts
    wei:ba post-ops:sum             of a product, layouts that are not row by row; what is fused
    T,N lda:2304                    MKL: the words, and numbers that are neither sizes nor room for work
    dcfi1024                        a transform's descriptor

What the library chooses stays out: the implementation, the layouts of all but products and reorders (as
channels-last), a convolution's algorithm, the scratchpad. So a call is found again in the trace of
another version or machine.
"""

from mlbackends.base.tables import table
from mlbackends.model.signature import PrimitiveSignature, RoutineSignature
from mlbackends.model.trace import Record
from mlbackends.tracing.formats.onednn.descriptors import MemoryDescriptor, descriptors
from mlbackends.tracing.numbers import whole_number

_PRODUCTS = frozenset({"matmul", "inner_product", "gemm_api"})
_CONVOLUTIONS = frozenset({"convolution", "deconvolution"})
_NOTHING = frozenset({"", "0", "undef"})
_IN_SHAPE = frozenset({"m", "n", "k", "nrhs", "rows", "cols", "kl", "ku", "kd", "batch_size", "info"})


def parameters(record: Record) -> str:
    """Return the parameters, separated by blanks; "" unless it is a call of a primitive or a routine."""
    signature = getattr(record, "signature", None) or getattr(record, "refused", None)
    if isinstance(signature, PrimitiveSignature):
        return " ".join(filter(None, _of_primitive(signature)))
    if isinstance(signature, RoutineSignature):
        arguments = record.derived.arguments
        if "descriptor" in arguments:
            return arguments["descriptor"]
        if "1" in arguments:  # not known by name, so that no size is known either
            return ",".join(value for value in arguments.values() if not value.startswith("0x"))
        letters = [text.upper() for text in arguments.values() if text.isalpha() and text.isascii()]
        sizes = {value for name, value in arguments.items() if name in _IN_SHAPE}
        numbers = []
        for name, value in arguments.items():
            number = whole_number(value)
            if name in _IN_SHAPE or name.endswith("work") or number is None:
                continue
            # A leading dimension that is one of the sizes leaves no gaps between the columns.
            if number != 1 and not (name.startswith("ld") and value in sizes):
                numbers.append(f"{name}:{value}")
        return " ".join([*([",".join(letters)] if letters else []), *numbers])
    return ""


def _of_primitive(call: PrimitiveSignature) -> list[str]:
    tensors = [descriptor for descriptor in descriptors(call.memory_descriptors) if descriptor.present]
    words = ["gpu" if "gpu" in call.engine else ""]
    if call.primitive == "reorder":
        words.append("->".join(_layout(tensor) for tensor in tensors))
    elif call.primitive in _PRODUCTS:
        for tensor in tensors:
            # Row-major layouts, and those that oneDNN chose, are not parameters.
            tag = tensor.layout
            is_chosen = "a" in tensor.properties or not tag.islower() or not tag.isalpha()
            if not is_chosen and (list(tag) != sorted(tag) or tensor.strides):
                words.append(f"{tensor.name}:{_layout(tensor)}")
    for word in call.auxiliary.split():
        name, _, value = word.partition(":")
        if name == "alg":
            if call.primitive not in _CONVOLUTIONS:
                words.append(value.removeprefix(f"{call.primitive.removesuffix('_v2')}_"))
        elif value.strip(":") not in _NOTHING:
            words.append(word)
    for word in call.attributes.split():  # what is fused and how it is computed, alike for all versions
        name, _, value = word.removeprefix("attr-").partition(":")
        value = value.replace("'", "").replace(";", "+").strip("+")
        if name != "scratchpad" and value:
            words.append(f"{name.replace('_', '-')}:{value}")
    if any(tensor.name.removeprefix("diff_").startswith("bia") for tensor in tensors):
        words.append("bia")
    # The direction last: where a page is narrow, the ends of words are kept.
    directions = table("tracing/formats/onednn/words")["directions"]
    return [*words, directions.get(call.propagation, call.propagation)]


def _layout(tensor: MemoryDescriptor) -> str:
    """Return a layout with the memory's extra contents; MKL-DNN's "f0" means none."""
    extra = "" if tensor.flags.strip(":") in {"", "f0"} else f":{tensor.flags}"
    strides = f":{tensor.strides}" if tensor.strides else ""
    return f"{tensor.layout or tensor.kind}{strides}{extra}"
