"""What is installed computes wrong numbers, by public reports."""

from collections import defaultdict
from collections.abc import Iterator

from mlbackends.audit.environment import install
from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.base.quantities import dotted_numbers
from mlbackends.known_wrong import Entry, Place, entries, is_default, is_there
from mlbackends.libraries.products import product_of
from mlbackends.model.audit import Severity
from mlbackends.model.records import Device

#: What is installed beside Python packages, by the probe that has its version.
_PROBES = {
    "cudnn": "cudnn",
    "openblas": "openblas",
    "mkl": "mkl",
    "onednn": "onednn",
    "rocm": "rocm",
    "driver": "nvidia",
}
_MOST_TITLES = 3
#: What models compute all the time, and the calls that do; a report about another call, or about rare values
#: on CPUs, is a note. One about rare values of another operation is left out.
_EVERYWHERE = ("attention", "gemm")
_USUAL = ("scaled_dot_product_attention", "matmul", "bmm", "sdpa_backward", "cblas_sgemm", "flash_attn_func")


def known_wrong_numbers(report: ReportView) -> Symptoms:
    """Yield one for each product."""
    report.need("packages.distributions")
    found: dict[str, dict[str, Entry]] = defaultdict(dict)
    for place in _places(report):
        for entry in entries():
            is_likely = entry.operation in _EVERYWHERE or not entry.unpredictable
            product = _installed(entry, place)
            if product and is_likely and is_there(entry, place) and not _is_avoided(report, entry, place):
                found[product][entry.name] = entry
    for product, by_name in sorted(found.items()):
        reports = sorted(by_name.values(), key=_is_rare)
        titles = "; ".join(f"{entry.in_a_sentence} ({entry.source})" for entry in reports[:_MOST_TITLES])
        more = f"; {len(reports) - _MOST_TITLES} more" if len(reports) > _MOST_TITLES else ""
        name, version = f"packages.distributions.{product}", report.package(product)
        if not version:
            name, version = f"{_PROBES[product]}.version", report.version(_PROBES[product])
        right = [
            entry.first_good.partition(" ")[2]
            for entry in reports
            if entry.first_good.startswith(f"{product} ")
        ]
        is_one = len(right) == len(reports) and all(map(dotted_numbers, right))
        # Packages that are compiled for one major version need not work with the next.
        is_one = is_one and all(number.split(".")[0] == version.split(".")[0] for number in right)
        yield Symptom(
            f"{product} {version} is known to compute wrong numbers here: {titles}{more}",
            hint="; ".join(dict.fromkeys(entry.instead for entry in reports[:_MOST_TITLES])),
            command=install(report, f"{product}>={max(right, key=dotted_numbers)}") if is_one else "",
            severity=Severity.NOTE if _is_rare(reports[0]) else None,
            evidence={name: version},
        )


def _is_rare(entry: Entry) -> bool:
    is_odd = entry.platforms == ("cpu",) and bool(entry.unpredictable)
    return entry.operation not in _EVERYWHERE or is_odd or not entry.function.endswith(_USUAL)


def _installed(entry: Entry, place: Place) -> str:
    """Return the distribution of a report's product, such as flash-attn-4 for flash-attn; "" for none."""
    names = (entry.product, *entry.versions)
    return next((name for name in names if name.startswith(entry.product) and name in place.versions), "")


def _places(report: ReportView) -> Iterator[Place]:
    """Yield the CPU of a report and each kind of its GPUs, with what is installed."""
    distributions = report.fact("packages.distributions", {})
    versions = {name: text for name, text in distributions.items() if isinstance(text, str)}
    versions |= {name: version for name, probe in _PROBES.items() if (version := report.version(probe))}
    system = report.fact("host.platform", "")
    features = frozenset({report.fact("cpu.architecture", ""), *report.fact("cpu.features", ())})
    yield Place("cpu", versions, features, system)
    if system == "darwin":
        yield Place("mps", versions | {"macos": report.fact("mps.macos_version", "")}, frozenset(), system)
    if not report.version("torch").partition("+")[2].startswith("cpu"):
        for platform, probe in (("cuda", "nvidia"), ("rocm", "rocm"), ("xpu", "xpu")):
            for capability in sorted({*map(_capability, report.devices(probe))} - {""}):
                yield Place(platform, versions, frozenset({capability}), system)


def _capability(device: Device) -> str:
    product = None if device.capability else product_of(device.name)
    return product.target if product else device.capability


def _is_avoided(report: ReportView, entry: Entry, place: Place) -> bool:
    """Return whether torch does not take that backend there, or the environment switches it off."""
    if entry.operation == "attention" and entry.product == "torch" and not is_default(entry, place):
        return True
    return any(report.variable(name) == value for name, value in entry.variables.items())
