"""An installed wheel is compiled for a newer CPU than this one."""

from mlbackends.audit.environment import install, uninstall
from mlbackends.audit.hazard import DoesNotApply, ReportView, Severity, Symptom, Symptoms
from mlbackends.host.python.requirements import satisfies
from mlbackends.model.records import nonempty

_V2 = ("sse4_2", "popcnt", "ssse3")
_V3 = ("avx2", "fma", "bmi1", "bmi2")
#: Package, releases, features by Linux's names, and what can be installed in its place.
#:
#: Tried under qemu's Core 2, Nehalem and Sandy Bridge in 2026: numpy 2.5, jaxlib 0.11 and 0.12,
#: tensorflow 2.21,
#: polars 1.33, 1.35 and 2.1, pyarrow 26.
#:
#: From 1.34 on polars itself holds no binary; polars-runtime-32 does, and polars-runtime-compat
#: comes before it.
_FLOORS = (
    ("tensorflow", ">=1.6", ("avx",), ""),
    ("tensorflow", "==2.4.0", ("avx2",), "tensorflow==2.4.1"),
    ("tensorflow-cpu", ">=1.15", ("avx",), ""),
    ("jaxlib", ">=0.1.62,<0.12", ("avx",), ""),
    ("jaxlib", ">=0.12", (*_V3, "f16c"), "jax<0.12"),
    ("numpy", ">=2.4.0", _V2, "numpy<2.4"),
    ("polars", ">=0.19.7,<1.34", _V3, "polars-lts-cpu=={version}"),
    ("polars-runtime-32", "", _V3, "polars[rtcompat]=={version}"),
    ("pyarrow", ">=1.0", ("sse4_2",), ""),
)
#: Packages whose replacement writes the same files: they must go first, or both are broken.
_SAME_FILES = {"polars": "polars-lts-cpu"}
#: Packages in whose place another one is loaded where it is there.
_SERVED_BY = {"polars-runtime-32": "polars-runtime-compat"}


def symptoms(report: ReportView) -> Symptoms:
    """Yield one for each package."""
    if report.fact("cpu.architecture") != "x86_64":
        raise DoesNotApply("requirements are known only for x86-64")
    is_conda = report.fact("python.manager") == "conda"
    has = frozenset(report.need("cpu.features"))
    level = nonempty({"cpu.x86_64_level": report.fact("cpu.x86_64_level")})
    for name, releases, features, instead in _FLOORS:
        version = report.package(name)
        if name in _SERVED_BY and report.package(_SERVED_BY[name]):
            continue
        if not version or (releases and not satisfies(version, releases)):
            continue
        missing = [feature for feature in features if feature not in has]
        if missing:
            command = install(report, instead.format(version=version)) if instead else ""
            if name in _SAME_FILES:
                command = f"{uninstall(report, name)} && {command}"
            yield Symptom(
                f"{name} {version} needs {', '.join(missing)}, which this CPU lacks"
                f" ({report.fact('cpu.x86_64_level', 'x86-64')})",
                command=command,
                severity=Severity.WARNING if is_conda else None,
                evidence={f"packages.distributions.{name}": version, **level},
            )
