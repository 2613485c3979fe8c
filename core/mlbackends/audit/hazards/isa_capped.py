"""A variable keeps a library from instructions that the processor has.

Found by:  environment and cpu: ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA, DNNL_MAX_CPU_ISA,
           MKL_ENABLE_INSTRUCTIONS (Intel only), OPENBLAS_CORETYPE and NPY_DISABLE_CPU_FEATURES.
No alarm:  a value that names all that the processor has, or more; MKL_CBWR, which is set for equal
           results and has a code of its own.
"""

from mlbackends.audit.environment import settings
from mlbackends.audit.hazard import ReportView, Severity, Symptom, Symptoms, table
from mlbackends.model.records import FactValue

SEVERITY = Severity.WARNING
READS = ("environment", "cpu")
WHY = (
    "They are set to reproduce a result or to get round a crash, and stay. Products of matrices are"
    " then slower by the width of vectors that is lost, or more."
)
MEND = "Unset it, and measure whether its reason is still there."
SOURCES = (
    "oneDNN developer guide, CPU dispatcher control",
    "oneMKL developer guide, Instruction Set Specific Dispatching",
    "OpenBLAS README, OPENBLAS_CORETYPE",
    "NumPy documentation, CPU build options, runtime dispatch",
)


def symptoms(report: ReportView) -> Symptoms:
    """Yield each variable that takes instructions away, with those that are lost."""
    variables = settings(report)
    features = frozenset(report.fact("cpu.features", ()))
    vendor = str(report.fact("cpu.vendor", ""))
    for name, value in variables.items():
        gone = lost(name, value, features, vendor)
        if gone:
            message = (
                f"{name} is {value[:80]!r}: what it steers does not use {', '.join(gone)}, which"
            )
            yield _symptom(
                name, value, f"{message} this processor has", {"cpu.features": list(gone)}
            )
    used, has = report.fact("cpu.capability", ""), report.fact("cpu.hardware_capability", "")
    words = ("DEFAULT", "AVX2", "AVX512")
    below = used == "DEFAULT" != has
    if used in words and has in words:
        below = words.index(used) < words.index(has)
    override = variables.get("ATEN_CPU_CAPABILITY", "")
    if below and override == used.lower().replace(" ", ""):
        message = f"ATEN_CPU_CAPABILITY is {override!r}: torch takes its {used} kernels, and {has} is here"
        evidence: dict[str, FactValue] = {"cpu.capability": used, "cpu.hardware_capability": has}
        yield _symptom("ATEN_CPU_CAPABILITY", override, message, evidence)


def lost(name: str, value: str, features: frozenset[str], vendor: str) -> tuple[str, ...]:
    """Return which of the processor's features a value takes away, by Linux's names; () for nothing.

    vendor: as the cpu probe spells it.
    """
    if name == "NPY_DISABLE_CPU_FEATURES":
        words = value.replace(",", " ").split()
        return tuple(sorted({word.lower() for word in words} & features))
    data = table("isa-capped")
    steps = data["steps"]
    for library in data.values():
        if library is steps or name not in library["variables"]:
            continue
        if library.get("vendor", vendor) != vendor:
            return ()
        used = steps[: steps.index(library.get("widest", steps[-1])) + 1]
        for first, values in library["first_lost"].items():
            if value.upper() in values:
                return tuple(step for step in used[steps.index(first) :] if step in features)
    return ()


def _symptom(name: str, value: str, message: str, evidence: dict[str, FactValue]) -> Symptom:
    return Symptom(
        message,
        command=f"unset {name}",
        evidence={f"environment.variables.{name}": value, **evidence},
    )
