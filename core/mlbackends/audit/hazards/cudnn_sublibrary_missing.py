"""A cuDNN lacks some of its sub-libraries."""

from mlbackends.audit.environment import reinstall
from mlbackends.audit.hazard import ReportView, Severity, Symptoms, from_warning
from mlbackends.audit.libraries import package_of


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each copy."""
    for warning in report.warnings("cudnn", "sub-library-missing"):
        copy = next(
            (library for library in report.libraries("cudnn") if library.path in warning.message),
            None,
        )
        from_wheel = copy is not None and copy.found_by == "site-packages" and copy.owner
        yield from_warning(
            warning,
            command=reinstall(report, *package_of(copy)) if copy and from_wheel else "",
            evidence={"cudnn.libraries.path": [copy.path]} if copy else {},
            severity=None if copy is None or copy.wins else Severity.NOTE,
        )
