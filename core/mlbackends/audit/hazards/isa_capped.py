"""A variable keeps a library from using this CPU's instructions."""

from mlbackends.audit.environment import setting, settings
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.base.tables import table
from mlbackends.host.python.requirements import satisfies
from mlbackends.model.records import FactValue

_LIBRARIES = {
    "ONEDNN_MAX_CPU_ISA": "oneDNN",
    "DNNL_MAX_CPU_ISA": "oneDNN",
    "MKL_ENABLE_INSTRUCTIONS": "MKL",
    "OPENBLAS_CORETYPE": "OpenBLAS",
}
_NUMPY = ("NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES")


def symptoms(report: ReportView) -> Symptoms:
    """Yield each variable that disables instructions, with those instructions."""
    variables = settings(report)
    features = frozenset(report.fact("cpu.features", ()))
    vendor = str(report.fact("cpu.vendor", ""))
    for name, value in variables.items():
        if name in _NUMPY:
            unused = lost_to_numpy(name, value, features, report.version("numpy"))
        else:
            unused = lost(name, value, features, vendor)
        if unused:
            library = _LIBRARIES.get(name, "NumPy")
            message = f"{setting(name, value)} keeps {library} from using this CPU's {', '.join(unused)}"
            yield _symptom(name, value, message, {"cpu.features": list(unused)})
    used, has = report.fact("cpu.capability", ""), report.fact("cpu.hardware_capability", "")
    words = ("DEFAULT", "AVX2", "AVX512")
    below = used == "DEFAULT" != has
    if used in words and has in words:
        below = words.index(used) < words.index(has)
    override = variables.get("ATEN_CPU_CAPABILITY", "")
    if below and override == used.lower().replace(" ", ""):
        message = (
            f"ATEN_CPU_CAPABILITY={override}: torch uses its {used} kernels, although the CPU supports {has}"
        )
        evidence: dict[str, FactValue] = {"cpu.capability": used, "cpu.hardware_capability": has}
        yield _symptom("ATEN_CPU_CAPABILITY", override, message, evidence)


def lost(name: str, value: str, features: frozenset[str], vendor: str) -> tuple[str, ...]:
    """Return which of the CPU's features a value disables, by Linux's names; () for none.

    vendor: as the cpu probe spells it.
    """
    data = table("audit/hazards/isa_capped.toml")
    steps = data["steps"]
    for library in data["libraries"]:
        if name not in library["variables"]:
            continue
        if library.get("vendor", vendor) != vendor:
            return ()
        used = steps[: steps.index(library.get("widest", steps[-1])) + 1]
        for first, values in library["first_lost"].items():
            if value.upper() in values:
                return tuple(step for step in used[steps.index(first) :] if step in features)
    return ()


def lost_to_numpy(name: str, value: str, features: frozenset[str], version: str) -> tuple[str, ...]:
    """Return the same for NumPy's variables. version: of NumPy, "" without one, which loses nothing."""
    words = value.replace(",", " ").split()
    names = {
        word: feature
        for row in table("audit/hazards/isa_capped.toml")["numpy"]
        if version and satisfies(version, row["releases"])
        for word, feature in row["names"].items()
        if feature in features
    }
    is_list_of_lost = name == "NPY_DISABLE_CPU_FEATURES"
    if not is_list_of_lost and names.keys().isdisjoint(words):
        return ()  # it refuses to start where a name is unknown or is not here
    return tuple(
        dict.fromkeys(feature for word, feature in names.items() if (word in words) is is_list_of_lost)
    )


def _symptom(name: str, value: str, message: str, evidence: dict[str, FactValue]) -> Symptom:
    return Symptom(
        message,
        command=f"unset {name}",
        evidence={f"environment.variables.{name}": value, **evidence},
    )
