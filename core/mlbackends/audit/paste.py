"""Read what people paste: the formats in it, and what they state, as a report."""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from mlbackends.audit.pasted._stated import Stated, dotted, package
from mlbackends.base import registry
from mlbackends.base.errors import BadInput
from mlbackends.base.patterns import without_secrets
from mlbackends.base.reasons import Reason
from mlbackends.base.version import __version__
from mlbackends.host.files import named_ends
from mlbackends.libraries.cuda.driver import driver_warning
from mlbackends.libraries.device_names import device_of_product
from mlbackends.model.records import SCHEMA, Device, Library, Presence, ProbeReport, Report

REGISTRY = "mlbackends.audit.pasted"
#: Of a longer text the first and the last half of so many bytes are read; one beyond the second is refused.
LIMIT = 8 << 20
_MOST = 1 << 30
_LONGEST_LINE = 4000
#: Colours and other sequences of terminals, and what must not be shown.
_SEQUENCES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|[()][A-Z0-9]|.)")
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\ufeff\ud800-\udfff]")
#: Marks of quotations and of the table of a terminal's log.
_QUOTED = re.compile(r"^(?:> ?)+", re.MULTILINE)
#: One of these is in each line that a message of the table is found in, in small letters.
_NOTABLE = (
    "error", "fail", "exception", "warn", "cannot", "n't", "unable", "not", "no ", "none", "un", "kill",
    "missing", "match", "invalid", "insufficient", "require", "conflict", "too ", "before", "newer", "differ",
    "duplicate", "denied", "fault", "illegal", "out of", "stack", "without", "only", "size", "access", "cuda",
    "nccl", "sig", "exit", "xid", "must", "oom", "died", "dispatched", "detected", "freeze", "hip", "weights",
    "dll", "alloc", "exceed", "contains", "resolution", "removed", "cudnn", "skipping", "corruption",
)  # fmt: skip
#: Lines of one text in which messages are searched; and what loggers print before an exception.
_MOST_LINES = 20_000
_EXCEPTION = re.compile(
    r"(?:^|[\])|:>│\"*] ?|[EFWI] )[ \t]*((?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt))(?::[ \t]|$)",
    re.MULTILINE,
)
#: Of so many lines at the end each is read with the next one too, if it has so many characters.
_MOST_JOINED, _NARROWEST = 2000, 40
#: A command of uv, behind a prompt or without one.
_UV = re.compile(r"^(?:[^\n$#>%]{0,80}[$#>%] ?)?uv (?:pip|run|add|sync|venv) ?", re.MULTILINE)
#: torch's domain libraries. From 2.9 on torchaudio needs no certain torch.
_PARTNERS = re.compile(r"(torchvision|torchaudio) (?:0\.(\d{1,2})|2\.([0-8]))\.")
_VISION_OF_TORCH_2 = 15
_DOMAINS = ("torchvision", "torchaudio")
_FRAMEWORKS = ("jax", "numpy", "tensorflow", "triton", "vllm", "xformers", "bitsandbytes", "scipy")
_DEVICE = re.compile(r"(\w+)\.devices\.(\d{1,3})\.(\w+)")
_KINDS = {"nvidia": "cuda", "rocm": "rocm"}


class Paste(Struct, frozen=True, dict=True):
    """A pasted text. subject: the file, for messages. formats: what is in it.

    cut: the line after which lines are left out, and their number.
    """

    subject: str
    text: str
    formats: tuple[str, ...]
    stated: dict[str, Stated]
    cut: tuple[int, int] = (0, 0)

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text."""
        return self.text.split("\n")

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(len(line) + 1 for line in self.lines)]

    def line(self, at: int) -> int:
        """Return the number of the line of a position, from 1."""
        return bisect_right(self._starts, at)

    def number(self, line: int) -> int:
        """Return the number that a line has in the file."""
        return line + self.cut[1] if line > self.cut[0] else line

    def line_text(self, number: int) -> str:
        """Return a line, without secrets."""
        return without_secrets(self.lines[number - 1].strip())

    @cached_property
    def notable(self) -> dict[str, int]:
        """The different lines that may contain a message, with their numbers."""
        first: dict[str, int] = {}
        for number, line in enumerate(self.lines, 1):
            first.setdefault(line, number)
        lowered = ((line, number, line.lower()) for line, number in first.items())
        notable = [(line, number) for line, number, low in lowered if any(word in low for word in _NOTABLE)]
        # A log begins with what was set up, and ends with what went wrong.
        return dict(notable[: _MOST_LINES // 2] + notable[_MOST_LINES // 2 :][-_MOST_LINES // 2 :])

    @cached_property
    def exceptions(self) -> dict[str, int]:
        """Those of them that end a traceback or report an exception, from its name on."""
        matches = ((_EXCEPTION.search(line), line, number) for line, number in self.notable.items())
        return {line[match.start(1) :]: number for match, line, number in matches if match}

    @cached_property
    def joined(self) -> dict[str, int]:
        """Lines with the next one, for messages that a terminal or a mail has wrapped."""
        lines = [line.strip(" \t│|") for line in self.lines[-_MOST_JOINED:]]
        pairs = enumerate(pairwise(lines), len(self.lines) - len(lines) + 1)
        long = [(*pair, number) for number, pair in pairs if len(pair[0]) >= _NARROWEST and pair[1]]
        return {f"{first}{gap}{second}": number for first, second, number in long for gap in (" ", "")}

    @cached_property
    def report(self) -> Report:
        """What the text states, as a report to the depth of files; what it does not state is missing."""
        return _report({name: one.value for name, one in self.stated.items()}, self.subject)


def read(path: str) -> Paste:
    """Read a file, or standard input for "-". Raises BadInput."""
    subject = "standard input" if path == "-" else path
    start, left_out, end = named_ends(path, LIMIT // 2, _MOST, subject)
    text = start.decode("utf-8", "replace")
    if not left_out:
        return of_text(text + end.decode("utf-8", "replace"), subject)
    line = cleaned(text).count("\n") + 1
    paste = of_text(f"{text}\n{end.decode('utf-8', 'replace')}", subject)
    return replace(paste, cut=(line, left_out - 1))


def of_text(raw: str, subject: str = "the text") -> Paste:
    """Return what a text states."""
    text = cleaned(raw)
    modules = [registry.load(REGISTRY, name) for name in registry.names(REGISTRY)]
    found = [module for module in modules if module.matches(text)]
    titles = [(module.__doc__ or module.__name__).partition("\n")[0].rstrip(".") for module in found]
    values = (one for module in found for one in module.read(text))
    stated: dict[str, Stated] = {}
    for one in _completed(sorted(values, key=lambda one: one.at)):
        stated.setdefault(one.name, one)
    if match := _UV.search(text):
        stated.setdefault("python.manager", Stated("python.manager", "uv", match.start()))
    return Paste(subject, text, tuple(titles), stated)


def cleaned(text: str) -> str:
    """Return a text without colours, carriage returns, invisible characters and marks of quotations."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n").replace("\xa0", " ")
    text = _UNFIT.sub("", _SEQUENCES.sub("", text))
    text = "\n".join(line[:_LONGEST_LINE] for line in text.split("\n"))
    return _QUOTED.sub("", text)


def unrecognised(paste: Paste) -> BadInput:
    """Return the error for a text with nothing that is known."""
    known = "has no output of a known tool and no known error message"
    return BadInput(
        f"{paste.subject} {known if paste.text.strip() else 'is empty'}",
        "paste a traceback, a log, or what torch's collect_env, `pip list` or nvidia-smi print",
    )


def _completed(stated: Iterable[Stated]) -> Iterator[Stated]:
    """Yield what is stated, and then what follows from it."""
    found: dict[str, Stated] = {}
    for one in stated:
        found.setdefault(one.name, one)
        yield one
    torch = found.get("torch.version") or found.get("packages.distributions.torch")
    if torch:
        version, local = str(torch.value), str(torch.value).partition("+")[2]
        yield torch._replace(name="torch.version")
        yield package("torch", version, torch.at)
        if local.startswith("cu") and local[2:].isdecimal():
            yield Stated("torch.cuda_version", dotted(local[2:]), torch.at)
            yield Stated("torch.built_for", "cuda", torch.at)
        elif local.startswith("rocm"):
            yield Stated("torch.hip_version", local.removeprefix("rocm"), torch.at)
            yield Stated("torch.built_for", "rocm", torch.at)
        elif local.startswith(("cpu", "xpu")):
            yield Stated("torch.built_for", local[:3], torch.at)
        elif (cuda := _cuda_of_wheels(found)) is not None:
            yield cuda
            yield cuda._replace(name="torch.built_for", value="cuda")
    if "torch.cuda_version" in found and "torch.built_for" not in found:
        yield found["torch.cuda_version"]._replace(name="torch.built_for", value="cuda")
    for name in _FRAMEWORKS:
        if framework := found.get(f"packages.distributions.{name}"):
            yield framework._replace(name=f"{name}.version")
    if jaxlib := found.get("packages.distributions.jaxlib"):
        yield jaxlib._replace(name="jax.jaxlib_version")
    for name, one in found.items():
        device = _DEVICE.fullmatch(name)
        if (
            device
            and device[3] == "name"
            and device[1] in _KINDS
            and (row := device_of_product(str(one.value)))
        ):
            yield one._replace(
                name=f"{device[1]}.devices.{device[2]}.capability", value=row.device.capability
            )
        if device and device[1] == "nvidia" and "host.platform" not in found and "host.libc" in found:
            yield found["host.libc"]._replace(name="host.platform", value="linux")


def _cuda_of_wheels(found: dict[str, Stated]) -> Stated | None:
    """Return the CUDA of the runtime's wheel, which torch of PyPI requires in its own version."""
    for name in ("nvidia-cuda-runtime-cu11", "nvidia-cuda-runtime-cu12", "nvidia-cuda-runtime"):
        if one := found.get(f"packages.distributions.{name}"):
            return one._replace(name="torch.cuda_version", value=".".join(str(one.value).split(".")[:2]))
    return None


def _report(values: dict[str, Any], subject: str) -> Report:
    facts: dict[str, dict[str, Any]] = {}
    devices: dict[str, dict[int, dict[str, Any]]] = {}
    for name, value in values.items():
        probe, _, fact = name.partition(".")
        if device := _DEVICE.fullmatch(name):
            devices.setdefault(probe, {}).setdefault(int(device[2]), {})[device[3]] = value
        elif probe in ("packages", "environment"):
            table, _, key = fact.partition(".")
            facts.setdefault(probe, {}).setdefault(table, {})[key] = value
        else:
            facts.setdefault(probe, {})[fact] = value
    for probe, listed in devices.items():
        count = {"nvidia": "gpu_count", "rocm": "gpu_count"}[probe]
        facts.setdefault(probe, {})[count] = len(listed)
    torch = facts.get("torch", {})
    if partners := _partners(facts.get("packages", {}).get("distributions", {})):
        torch["partners"] = partners
    probes = {}
    for probe, own in facts.items():
        probes[probe] = ProbeReport(
            Presence.FOUND,
            version=str(own.pop("version", "")),
            facts=own,
            devices=tuple(
                _device(probe, index, one) for index, one in sorted(devices.get(probe, {}).items())
            ),
            libraries=_wheel(facts) if probe == "torch" else (),
        )
    for name in ("jax", "tensorflow") if torch else ():
        probes.setdefault(name, ProbeReport(Presence.ABSENT))
    for name, warning in _warnings(probes):
        probes[name] = replace(probes[name], warnings=(*probes[name].warnings, warning))
    return Report(
        schema=SCHEMA,
        tool=f"backends {__version__}",
        depth=Presence.FOUND,
        root=subject,
        created="",
        duration_seconds=0.0,
        redacted=False,
        probes=probes,
    )


def _device(probe: str, index: int, values: dict[str, Any]) -> Device:
    fields = ("name", "memory_bytes", "capability", "pci_address")
    own = {name: values.pop(name) for name in fields if name in values}
    # NVML or the runtime has described it.
    return Device(_KINDS.get(probe, probe), index, presence=Presence.LOADABLE, facts=values, **own)


def _wheel(facts: dict[str, dict[str, Any]]) -> tuple[Library, ...]:
    """Return torch's library where pip has installed it: PyPI's and PyTorch's wheels have known contents."""
    version = facts.get("packages", {}).get("distributions", {}).get("torch")
    if not version or facts.get("python", {}).get("manager") == "conda":
        return ()
    owner = f"torch {version}"
    return (Library("torch", "torch/lib/libtorch_cpu.so", found_by="site-packages", owner=owner),)


def _partners(installed: dict[str, str]) -> list[dict[str, str]]:
    """Return the packages that are compiled against one version of torch, which theirs tells."""
    rows = []
    for match in filter(None, (_PARTNERS.match(f"{name} {installed.get(name, '')}") for name in _DOMAINS)):
        name, old, minor = match[1], int(match[2] or 0), match[3]
        wanted = f"2.{minor}" if minor else f"1.{old}"
        if name == "torchvision":
            newer = old - _VISION_OF_TORCH_2
            wanted = f"2.{newer}" if newer >= 0 else f"1.{old - 1}"
        rows.append({"package": name, "version": installed[name], "wanted": f"{wanted}.*"})
    return rows


def _warnings(probes: dict[str, ProbeReport]) -> Iterator[tuple[str, Reason]]:
    """Yield what the probes themselves warn of where they have these facts, as (probe, warning)."""
    nvidia, torch = probes.get("nvidia", ProbeReport(None)), probes.get("torch", ProbeReport(None))
    build, release = f"torch {torch.version}", str(nvidia.facts.get("driver_release", ""))
    cuda = str(torch.facts.get("cuda_version", ""))
    if cuda and (old := driver_warning(release, cuda, f"{build}, built for CUDA {cuda},")):
        yield "torch", old
    if torch.facts.get("built_for") == "cpu" and nvidia.devices:
        message = (
            f"{build} is built without CUDA, and there is an NVIDIA GPU ({nvidia.devices[0].name or 'GPU 0'})"
        )
        yield "torch", Reason("degraded", message, "install a build of torch for CUDA")
    xformers = probes.get("xformers", ProbeReport(None))
    wanted = str(xformers.facts.get("built_for_torch", ""))
    if wanted and torch.version and wanted.partition("+")[0] != torch.version.partition("+")[0]:
        message = f"xformers is built for torch {wanted}, and {build} is installed"
        yield "xformers", Reason("conflict", message, f"install the xformers that is built for {build}")
