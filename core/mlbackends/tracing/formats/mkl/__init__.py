"""MKL: one line for each call of BLAS, LAPACK, a transform or random numbers; VML prints none.

Prints:   to the program's standard output, or appended to a file, one write a line.
Needs:    variables that are read at the first call; the file, MKL 2021.4 or newer.
Source:   oneMKL Developer Guide, "Using oneMKL Verbose Mode"; MKL 2019.0 to 2026.2 as they print.
"""

from mlbackends.model.signature import Derived, RoutineSignature, Signature
from mlbackends.model.trace import AnyRecord
from mlbackends.tracing.formats.mkl import glued, grammar, keys
from mlbackends.tracing.formats.mkl.fft import PRECISION, transform, unknown_values
from mlbackends.tracing.formats.mkl.routines import argument_names, routine
from mlbackends.tracing.formats.mkl.work import element_type, work

MARKERS = tuple(text.encode() for text in (grammar.MARKER, *grammar.ERRORS, *grammar.FATAL))

_SIZES = ("m", "n", "k", "nrhs", "rows", "cols", "kl", "ku", "kd", "batch_size")
_WORDS = frozenset({"side", "uplo", "trans", "transa", "transb", "diag"})


def environment(
    *, level: str = "exec", timestamps: bool = False, components: str = "", file: str = ""
) -> dict[str, str]:
    """Return what to set so that any version prints its lines.

    level: "exec" or any other word of a tracer: MKL has one level on a CPU. timestamps, components:
    not used; MKL has neither. file: where to append the lines; "" is standard output. MKL makes it,
    and where it cannot, warns on standard error and prints to standard output.
    """
    del level, timestamps, components
    return {"MKL_VERBOSE": "1"} | ({"MKL_VERBOSE_OUTPUT_FILE": file} if file else {})


def parse(line: str) -> AnyRecord | None:
    """Return the record of a whole line, from its marker on; None if it does not keep to the grammar."""
    return grammar.parse(line)


split = glued.split
Shortener = keys.Shortener


def derive(signature: Signature) -> Derived:
    """Tell operation, sizes, types and work of a call, and name its arguments."""
    if not isinstance(signature, RoutineSignature):
        return Derived()
    if signature.routine == "FFT":
        return _transform(signature)
    stem, prefix = routine(signature.routine)
    arguments = _named(signature)
    sizes = {
        name: int(value)
        for name, value in arguments.items()
        if name in _SIZES and value.isdecimal()
    }
    dtype = element_type(stem, prefix)
    flops, traffic = work(stem, dtype, sizes, arguments)
    query = any(arguments.get(name) == "-1" for name in ("lwork", "liwork", "lrwork"))
    return Derived(
        operation=signature.routine,
        shape="".join(f"{name}{sizes[name]}" for name in _SIZES if name in sizes),
        dtype=dtype,
        flops=None if query else flops,
        bytes=None if query else traffic,
        workspace_query=query,
        arguments=arguments,
    )


def _named(signature: RoutineSignature) -> dict[str, str]:
    """Give names to the values, "1", "2" and so on where the routine or its count is not known."""
    names = argument_names(signature.routine) or ()
    if len(signature.values) == len(names) + 1:
        names = ("result", *names)
    if len(signature.values) != len(names):
        names = tuple(str(index) for index in range(1, len(signature.values) + 1))
    return dict(zip(names, signature.values, strict=True))


def _transform(signature: RoutineSignature) -> Derived:
    descriptor, *rest = signature.values or ("",)
    arguments = {"descriptor": descriptor}
    for value in rest:
        name, _, text = value.partition(":")
        arguments[name] = text
    unknown = unknown_values(arguments)
    found = transform(descriptor)
    if found is None:
        return Derived(operation="FFT", shape=descriptor, arguments=arguments, unknown=unknown)
    lengths = "x".join(str(length) for length in found.lengths)
    return Derived(
        operation="FFT",
        shape=lengths + (f"*{found.count}" if found.count > 1 else ""),
        dtype=_domain(found.precision, found.domain),
        flops=found.flops,
        bytes=found.bytes,
        arguments=arguments,
        unknown=unknown,
    )


def _domain(precision: str, domain: str) -> str:
    if domain == "r":
        return PRECISION[precision][0]
    return {"h": "c32", "s": "c64", "d": "c128"}[precision]
