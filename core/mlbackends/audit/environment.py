"""The environment of a report as hazards read it: variables and their effects, and commands to type in it."""

import shlex
from collections.abc import Callable, Mapping

from mlbackends.audit.hazard import ReportView, Symptom, Symptoms
from mlbackends.base.patterns import pattern

#: Whether a value has the effect, and the effect in words that go on after "it is set: ".
Effect = tuple[Callable[[str], bool], str]

_INTEGER = pattern(r"\s*([+-]?)(?:0[xX]([0-9a-fA-F]{1,30})|(0[0-7]{0,30})|([1-9]\d{0,30}))")


def settings(report: ReportView) -> dict[str, str]:
    """Return the variables that are set to something, an empty one left out.

    Raises NotReported if the report has no environment.
    """
    variables = report.need("environment.variables")
    return {
        name: value.strip()
        for name, value in variables.items()
        if isinstance(value, str) and value.strip()
    }


def is_on(value: str) -> bool:
    """Return whether a value means yes to most programs."""
    return value.lower() in ("1", "true", "t", "yes", "y", "on")


def is_off(value: str) -> bool:
    """Return whether a value means no to most programs."""
    return value.lower() in ("0", "false", "f", "no", "n", "off")


def integer(value: str) -> int:
    """Return the number at the beginning of a value as C's strtoll with base 0 reads it, 0 for none."""
    found = _INTEGER.match(value)
    if found is None:
        return 0
    sign, hexadecimal, octal, decimal = found.groups()
    number = int(hexadecimal or octal or decimal, 16 if hexadecimal else 8 if octal else 10)
    return -number if sign == "-" else number


def is_one(value: str) -> bool:
    """Return whether a value is 1, the only yes of some programs."""
    return value == "1"


def is_number(value: str) -> bool:
    """Return whether a value is a number other than 0 to programs in C."""
    return integer(value) != 0


def is_anything(value: str) -> bool:
    """Return whether the value is not empty."""
    return bool(value)


def effects(report: ReportView, table: Mapping[str, Effect]) -> Symptoms:
    """Yield a symptom for each variable of the table whose value has the effect."""
    for name, value in settings(report).items():
        has_effect, effect = table.get(name, (bool, ""))
        if effect and has_effect(value):
            yield Symptom(
                f"{name} is {value[:80]!r}: {effect}",
                command=f"unset {name}",
                evidence={f"environment.variables.{name}": value},
            )


#: The probes of Python packages, which report problems with the installation.
FRAMEWORKS = (
    *("cupy", "cutlass", "flash_attention", "jax", "numpy", "onnxruntime", "opt_einsum", "scipy"),
    *("tensorflow", "torch", "transformer_engine", "triton", "xformers"),
)

SEARCH_PATHS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def install(report: ReportView, *requirements: str) -> str:
    """Return the command that installs requirements, such as "numpy<2", over the installed version."""
    return _package_command(report, "install", *requirements)


def reinstall(report: ReportView, name: str, version: str) -> str:
    """Return the command that writes a package's files anew and touches no other package."""
    is_uv = report.fact("python.manager") == "uv"
    options = ["--reinstall-package", name] if is_uv else ["--force-reinstall"]
    # PyPI has no version with a local part; PyTorch has an index for each build (pytorch/pytorch#111716).
    build = version.partition("+")[2]
    if name in _AT_PYTORCH and _PYTORCH_BUILD.fullmatch(build):
        options += ["--index-url", f"https://download.pytorch.org/whl/{build}"]
    requirement = f"{name}=={version}" if version else name
    return _package_command(report, "install", *options, "--no-deps", requirement)


_AT_PYTORCH = ("torch", "torchvision", "torchaudio", "torchtext", "xformers")
_PYTORCH_BUILD = pattern(r"cpu|xpu|cu\d+|rocm[\d.]+")


def uninstall(report: ReportView, *names: str) -> str:
    """Return the command that uninstalls packages."""
    return _package_command(report, "uninstall", *names)


def _package_command(report: ReportView, verb: str, *arguments: str) -> str:
    program = str(report.fact("python.executable", "python"))
    words = [program, "-m", "pip", verb]
    if report.fact("python.manager") == "uv":
        words = ["uv", "pip", verb, "--python", program]
    return " ".join(map(quoted, (*words, *arguments)))


def without_folder(report: ReportView, variable: str, path: str) -> str:
    """Return the command that takes the folder of a file out of a search path.

    "" if the report lacks the variable, or the variable does not contain that folder.
    """
    value = report.variable(variable)
    folder = path.rpartition("/")[0].rstrip("/")
    if value is None or not folder:
        return ""
    parts = value.replace(";", ":").split(":")
    left = [part for part in parts if part and part.rstrip("/") != folder]
    if len(left) == len([part for part in parts if part]):
        return ""
    return f"export {variable}={':'.join(map(quoted, left))}" if left else f"unset {variable}"


def quoted(word: str) -> str:
    """Quote a word for a shell; a redacted report has ~ for the home folder, which must stay bare."""
    home, slash, rest = word.partition("/")
    if home == "~" and slash and rest:
        return f"~/{shlex.quote(rest)}"
    return shlex.quote(word)
