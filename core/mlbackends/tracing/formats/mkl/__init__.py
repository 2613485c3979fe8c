"""MKL: one line for each call of BLAS, LAPACK, a transform or random numbers; VML prints none.

Prints:   to the program's standard output, or appended to a file, one write a line.
Needs:    variables that are read at the first call; the file, MKL 2021.4 or newer.
Source:   oneMKL Developer Guide, "Using oneMKL Verbose Mode"; MKL 2019.0 to 2026.2 as they print.
"""

from mlbackends.model.signature import Derived, RoutineSignature, Signature
from mlbackends.tracing.formats.mkl import grammar
from mlbackends.tracing.formats.mkl.fft import derived_of_transform
from mlbackends.tracing.formats.mkl.routines import element_type, routine
from mlbackends.tracing.formats.mkl.work import work
from mlbackends.tracing.numbers import whole_number

MARKERS = tuple(
    text.encode() for text in (grammar.MARKER, *grammar.ERRORS, *grammar.FATAL, *grammar.SERVICES)
)
parse, split, cut = grammar.parse, grammar.split, grammar.cut

_SIZES = ("m", "n", "k", "nrhs", "rows", "cols", "kl", "ku", "kd", "batch_size")


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


def derive(signature: Signature) -> Derived:
    """Return operation, sizes, types, work and named arguments of a call."""
    if not isinstance(signature, RoutineSignature):
        return Derived()
    if signature.routine == "FFT":
        return derived_of_transform(signature)
    stem, prefix, names = routine(signature.routine)
    values = signature.values
    if len(values) == len(names) + 1:
        names = ("result", *names)
    if len(values) != len(names):  # the routine or its count is not known
        names = tuple(str(index) for index in range(1, len(values) + 1))
    arguments = dict(zip(names, values, strict=True))
    numbers = ((name, whole_number(arguments.get(name, ""))) for name in _SIZES)
    sizes = {name: number for name, number in numbers if number is not None and number >= 0}
    dtype = element_type(stem, prefix)
    flops, traffic = work(stem, dtype, sizes, arguments)
    query = any(arguments.get(name) == "-1" for name in ("lwork", "liwork", "lrwork"))
    return Derived(
        operation=signature.routine,
        shape="".join(f"{name}{size}" for name, size in sizes.items()),
        dtype=dtype,
        flops=None if query else flops,
        bytes=None if query else traffic,
        workspace_query=query,
        arguments=arguments,
    )
