"""The environment of a report as hazards read it: variables, their values, and commands to type in it."""

from collections.abc import Mapping, Sequence

from mlbackends.audit.hazard import ReportView
from mlbackends.base.patterns import pattern
from mlbackends.base.specifiers import narrowed
from mlbackends.host.python.installing import package_command, quoted, reinstall_command

_PLAIN = pattern(r"[\w.,:/=+*;@%{}()~\[\]-]{1,80}")
_INTEGER = pattern(r"\s*([+-]?)(?:0[xX]([0-9a-fA-F]{1,30})|(0[0-7]{0,30})|([1-9]\d{0,30}))")


def settings(report: ReportView) -> dict[str, str]:
    """Return the variables that are set and not empty.

    Raises NotReported if the report does not contain the environment.
    """
    variables = report.need("environment.variables")
    return {
        name: value.strip() for name, value in variables.items() if isinstance(value, str) and value.strip()
    }


def is_on(value: str) -> bool:
    """Return whether a value means yes to most programs."""
    return value.lower() in ("1", "true", "t", "yes", "y", "on")


def is_off(value: str) -> bool:
    """Return whether a value means no to most programs."""
    return value.lower() in ("0", "false", "f", "no", "n", "off")


def integer(value: str) -> int:
    """Return the number at the start of a value as C's strtoll with base 0 reads it, or 0."""
    found = _INTEGER.match(value)
    if found is None:
        return 0
    sign, hexadecimal, octal, decimal = found.groups()
    number = int(hexadecimal or octal or decimal, 16 if hexadecimal else 8 if octal else 10)
    return -number if sign == "-" else number


def is_number(value: str) -> bool:
    """Return whether programs in C read a value as a number other than 0."""
    return integer(value) != 0


def setting(name: str, value: str) -> str:
    """Return "NAME=value" for a message; a long value is cut, and one with odd characters is quoted."""
    return f"{name}={value[:80] if _PLAIN.fullmatch(value[:80]) else repr(value[:80])}"


#: The probes of Python packages that report problems of their installation.
FRAMEWORKS = (
    "bitsandbytes", "ctranslate2", "cupy", "cutlass", "faiss", "flash_attention", "hf_kernels",
    "jax", "llama_cpp", "numpy", "onnxruntime", "openvino", "opt_einsum", "scipy", "sgl_kernel",
    "tensorflow", "torch", "transformer_engine", "triton", "vllm", "xformers",
)  # fmt: skip

SEARCH_PATHS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def install(report: ReportView, *requirements: str) -> str:
    """Return the command that installs requirements, such as "numpy<2"."""
    return package_command(*_installer(report), "install", *requirements)


def install_unmet(report: ReportView, rows: Sequence[Mapping[str, str]], *, by_package: bool = False) -> str:
    """Return the command that installs what rows of packages.unmet need, each package once; "" for none.

    by_package: it names the packages that need them, as where they are many: pip installs what those lack.
    """
    wanted: dict[str, tuple[set[str], set[str]]] = {}
    for row in rows:
        if row["needs"] != "python":
            extras, clauses = wanted.setdefault(row["needs"], (set(), set()))
            extras |= {*filter(None, row.get("extras", "").split(","))}
            clauses |= {*filter(None, row.get("wanted", "").split(","))}
    requirements = [
        name + f"[{','.join(sorted(extras))}]" * bool(extras) + narrowed(clauses)
        for name, (extras, clauses) in sorted(wanted.items())
    ]
    if by_package or len(requirements) > _LISTED:
        requirements = sorted({f"{row['package']}=={row.get('version', '')}".rstrip("=") for row in rows})
    return install(report, *requirements) if requirements else ""


#: Requirements that one command lists.
_LISTED = 6


def reinstall(report: ReportView, name: str, version: str) -> str:
    """Return the command that reinstalls a package and changes no other."""
    return reinstall_command(*_installer(report), name, version)


def uninstall(report: ReportView, *names: str) -> str:
    """Return the command that uninstalls packages."""
    return package_command(*_installer(report), "uninstall", *names)


def readable(*paths: str) -> str:
    """Return the command that lets every user read files and folders."""
    return " ".join(["chmod -R a+rX", *map(quoted, paths)])


def _installer(report: ReportView) -> tuple[str, str]:
    """Return the interpreter of a report and the manager of its environment."""
    return str(report.fact("python.executable", "python")), str(report.fact("python.manager", ""))


def without_folder(report: ReportView, variable: str, path: str) -> str:
    """Return the command that removes the folder of a file from a search path.

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
