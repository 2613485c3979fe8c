"""The kernel gives no huge pages, or makes programs wait for them.

Found by:  memory: transparent_hugepage/enabled never, or defrag always; environment:
           THP_MEM_ALLOC_ENABLE, with which torch asks for them.
No alarm:  always and madvise with a defrag that does not wait: which is better depends on the program.
"""

from typing import TYPE_CHECKING

from mlbackends.audit.environment import is_one
from mlbackends.audit.hazard import Problem, ReportView, Severity, Symptom, Symptoms

if TYPE_CHECKING:
    from mlbackends.model.records import FactValue

SEVERITY = Severity.NOTE
PROBLEM = Problem.NODE
READS = ("memory",)
WHY = (
    "Large tensors in small pages cost a walk through the page tables for each 4 KiB. Making room at"
    " each fault, the other way, stops programs for milliseconds."
)
MEND = "madvise leaves the choice to each program; as root, until the next start."
SOURCES = (
    "https://docs.kernel.org/admin-guide/mm/transhuge.html",
    "pytorch/pytorch, c10/core/impl/alloc_cpu.cpp, THP_MEM_ALLOC_ENABLE",
)
_FOLDER = "/sys/kernel/mm/transparent_hugepage"


def symptoms(report: ReportView) -> Symptoms:
    """Yield the setting that takes huge pages away, and the one that waits for them."""
    report.only_on("linux")
    mode = str(report.need("memory.transparent_huge_pages"))
    defrag = str(report.fact("memory.transparent_huge_pages_defrag", ""))
    is_requested = is_one((report.variable("THP_MEM_ALLOC_ENABLE") or "").strip())
    evidence: dict[str, FactValue] = {
        "memory.transparent_huge_pages": mode,
        "memory.transparent_huge_pages_defrag": defrag,
    }
    if mode == "never":
        message = "transparent huge pages are never used: tensors lie in small pages"
        if is_requested:
            message += ", though THP_MEM_ALLOC_ENABLE asks for huge ones"
        yield Symptom(
            message,
            command=f"echo madvise > {_FOLDER}/enabled",
            evidence=evidence,
            severity=Severity.WARNING if is_requested else None,
        )
    elif defrag == "always":
        yield Symptom(
            "the kernel makes room for huge pages while programs wait (defrag is always)",
            command=f"echo madvise > {_FOLDER}/defrag",
            evidence=evidence,
        )
