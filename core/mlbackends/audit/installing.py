"""What to type in the environment that a report is of: install, uninstall, search path.

A name from a report may be anything; every word is quoted for a shell.
"""

import shlex

from mlbackends.audit.known import Known

FRAMEWORKS = (
    *("cupy", "cutlass", "flash_attention", "jax", "numpy", "onnxruntime", "opt_einsum", "scipy"),
    *("tensorflow", "torch", "transformer_engine", "triton", "xformers"),
)
"""The probes whose thing is a Python package, and that say what is wrong with how it is installed."""

SEARCH_PATHS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


def install(known: Known, *wanted: str) -> str:
    """Return the command that installs requirements, such as "numpy<2", over what is there."""
    return _joined(*_installer(known, "install"), *wanted)


def reinstall(known: Known, name: str, version: str) -> str:
    """Return the command that writes a package's files anew and touches no other package."""
    wanted = f"{name}=={version}" if version else name
    again = "--reinstall-package" if _is_uv(known) else "--force-reinstall"
    options = [again, name] if _is_uv(known) else [again]
    return _joined(*_installer(known, "install"), *options, "--no-deps", wanted)


def uninstall(known: Known, *names: str) -> str:
    """Return the command that uninstalls packages."""
    return _joined(*_installer(known, "uninstall"), *names)


def without_folder(known: Known, variable: str, path: str) -> str:
    """Return the command that takes the folder of a file out of a search path.

    "" where the report does not tell what the variable holds, or it does not name that folder.
    """
    value = known.variable(variable)
    folder = path.rpartition("/")[0].rstrip("/")
    if value is None or not folder:
        return ""
    parts = value.replace(";", ":").split(":")
    left = [part for part in parts if part and part.rstrip("/") != folder]
    if len(left) == len([part for part in parts if part]):
        return ""
    return f"export {variable}={':'.join(map(quoted, left))}" if left else f"unset {variable}"


def _installer(known: Known, verb: str) -> list[str]:
    program = str(known.fact("python.executable", "python"))
    if _is_uv(known):
        return ["uv", "pip", verb, "--python", program]
    return [program, "-m", "pip", verb]


def _is_uv(known: Known) -> bool:
    return bool(known.fact("python.manager") == "uv")


def _joined(*words: str) -> str:
    return " ".join(map(quoted, words))


def quoted(word: str) -> str:
    """Quote a word for a shell; a redacted report has ~ for the home folder, which must stay bare."""
    home, slash, rest = word.partition("/")
    if home == "~" and slash and rest:
        return f"~/{shlex.quote(rest)}"
    return shlex.quote(word)
