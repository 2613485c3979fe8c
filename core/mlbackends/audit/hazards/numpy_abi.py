"""NumPy 2 is installed with packages that were compiled for NumPy 1."""

from typing import TYPE_CHECKING

from mlbackends.audit.environment import install
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.base.tables import table
from mlbackends.host.python.requirements import satisfies

if TYPE_CHECKING:
    from mlbackends.model.records import FactValue


_TORCH_ON_WINDOWS = "2.4.1"


def symptoms(report: ReportView) -> Symptoms:
    """Yield one, with every package that is too old."""
    numpy = report.package("numpy")
    if not satisfies(numpy, ">=2.0.0.dev0"):
        return
    first: dict[str, str] = dict(table("audit/hazards/numpy_abi.toml")["first"])
    if report.fact("host.platform") == "win32":
        first["torch"] = _TORCH_ON_WINDOWS
    old = {
        name: version
        for name, since in first.items()
        if (version := report.package(name)) and satisfies(version, f"<{since}")
    }
    if old:
        listed = ", ".join(
            f"{name} {version} (needs {first[name]} or newer)" for name, version in old.items()
        )
        evidence: dict[str, FactValue] = {
            f"packages.distributions.{name}": version for name, version in {"numpy": numpy, **old}.items()
        }
        yield Symptom(
            f"numpy {numpy} is installed with packages compiled for NumPy 1: {listed}",
            command=install(report, "numpy<2"),
            evidence=evidence,
        )
