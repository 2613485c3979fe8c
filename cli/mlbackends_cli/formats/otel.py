"""The value of OTEL_RESOURCE_ATTRIBUTES, by which every SDK of OpenTelemetry names the machine it runs on.

The names are those of its semantic conventions for hosts and operating systems.
"""

from urllib.parse import quote

from mlbackends.model.records import Report
from mlbackends_cli.terminal import Page
from mlbackends_cli.text.plain import one_line

_ATTRIBUTES = {
    "host.name": "host.host_name",
    "host.arch": "cpu.architecture",
    "host.cpu.vendor.id": "cpu.vendor_id",
    "host.cpu.model.name": "cpu.model_name",
    "host.cpu.family": "cpu.family",
    "host.cpu.model.id": "cpu.model",
    "host.cpu.stepping": "cpu.stepping",
    "os.type": "host.platform",
    "os.name": "host.os_name",
    "os.version": "host.os_version",
}
#: Theirs for ours.
_WORDS = {
    "x86_64": "amd64",
    "i686": "x86",
    "aarch64": "arm64",
    "armv7l": "arm32",
    "ppc64le": "ppc64",
    "win32": "windows",
}


def report(report: Report, _page: Page) -> str:
    """Return the attributes; of a redacted report the host's name is none."""
    pairs = []
    for attribute, name in _ATTRIBUTES.items():
        probe, _, fact = name.partition(".")
        value = report.probes[probe].facts.get(fact) if probe in report.probes else None
        is_hidden = attribute == "host.name" and report.redacted
        if isinstance(value, str | int) and not isinstance(value, bool) and not is_hidden:
            text = one_line(str(value))
            pairs.append(f"{attribute}={quote(_WORDS.get(text, text))}")
    return ",".join(pairs)
