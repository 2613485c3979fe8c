"""the output of `lscpu`, in any language, or /proc/cpuinfo."""

import re
from collections.abc import Iterator

from mlbackends.audit.pasted._stated import Stated
from mlbackends.host.cpu.features import feature_facts, hardware_capability, x86_64_level

_ARCHITECTURE = re.compile(
    r"^[^\n:=]{4,30}:[ \t]+(x86_64|aarch64|ppc64le|s390x|riscv64)[ \t]*$", re.MULTILINE
)
#: Values are the same in each language; only the names before the colon are translated.
_FLAGS = re.compile(r"^[^\n:=]{4,30}:[ \t]+((?:fpu vme|fp asimd)\b[a-z0-9_ ]*)$", re.MULTILINE)
_VENDOR = re.compile(r":[ \t]+(GenuineIntel|AuthenticAMD|ARM)[ \t]*$", re.MULTILINE)
_MODEL = re.compile(
    r"^[^\n:=]{4,30}:[ \t]+((?:\d\dth Gen )?(?:Intel\(R\)|AMD (?:Ryzen|EPYC|Eng)"
    r"|QEMU|Common KVM|Neoverse|Cortex)[^\n]*)$",
    re.MULTILINE,
)
_VENDORS = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD", "ARM": "ARM"}


def matches(text: str) -> bool:
    """Return whether the text has the line of flags."""
    return bool(_FLAGS.search(text))


def read(text: str) -> Iterator[Stated]:
    """Read processor, features, and what follows from these."""
    flags = _FLAGS.search(text)
    match = _ARCHITECTURE.search(text)
    is_arm = flags is not None and flags[1].startswith("fp ")
    architecture = match[1] if match else "aarch64" if is_arm else "x86_64"
    at = match.start() if match else flags.start() if flags else 0
    yield Stated("cpu.architecture", architecture, at)
    yield Stated("host.machine", architecture, at)
    if vendor := _VENDOR.search(text):
        yield Stated("cpu.vendor", _VENDORS[vendor[1]], vendor.start(1))
    if model := _MODEL.search(text):
        yield Stated("cpu.model_name", model[1].strip(), model.start())
    if flags:
        features = frozenset(flags[1].split())
        for name, value in feature_facts(architecture, features).items():
            yield Stated(f"cpu.{name}", value, flags.start())
        yield Stated("cpu.hypervisor", "hypervisor" in features, flags.start())
        if level := x86_64_level(features) if architecture == "x86_64" else "":
            yield Stated("cpu.x86_64_level", level, flags.start())
        if capability := hardware_capability(architecture, features, None, "linux"):
            yield Stated("cpu.hardware_capability", capability, flags.start())
