"""A variable keeps a library from instructions that the processor has.

Told by:   environment and cpu: ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA, DNNL_MAX_CPU_ISA,
           MKL_ENABLE_INSTRUCTIONS (Intel only), OPENBLAS_CORETYPE and NPY_DISABLE_CPU_FEATURES.
No alarm:  a value that names all that the processor has, or more; MKL_CBWR, which is set for equal
           results and has a code of its own.
"""

from collections.abc import Iterator

from mlbackends.audit.environment import settings
from mlbackends.audit.hazard import ReportView, Severity, Symptom
from mlbackends.audit.instruction_caps import lost
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


def symptoms(report: ReportView) -> Iterator[Symptom]:
    """Yield each variable that takes instructions away, with those that are lost."""
    told = settings(report)
    features = frozenset(report.fact("cpu.features", ()))
    vendor = str(report.fact("cpu.vendor", ""))
    for name, value in told.items():
        gone = lost(name, value, features, vendor)
        if gone:
            said = f"{name} is {value[:80]!r}: what it steers does not use {', '.join(gone)}, which"
            yield _symptom(name, value, f"{said} this processor has", {"cpu.features": list(gone)})
    used, has = report.fact("cpu.capability", ""), report.fact("cpu.hardware_capability", "")
    ladder = ("DEFAULT", "AVX2", "AVX512")
    below = used == "DEFAULT" != has
    if used in ladder and has in ladder:
        below = ladder.index(used) < ladder.index(has)
    override = told.get("ATEN_CPU_CAPABILITY", "")
    if below and override == used.lower().replace(" ", ""):
        said = f"ATEN_CPU_CAPABILITY is {override!r}: torch takes its {used} kernels, and {has} is here"
        seen: dict[str, FactValue] = {"cpu.capability": used, "cpu.hardware_capability": has}
        yield _symptom("ATEN_CPU_CAPABILITY", override, said, seen)


def _symptom(name: str, value: str, message: str, evidence: dict[str, FactValue]) -> Symptom:
    return Symptom(
        message,
        command=f"unset {name}",
        evidence={f"environment.variables.{name}": value, **evidence},
    )
