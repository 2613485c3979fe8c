"""The commands that install packages into an environment, as its user would type them."""

import shlex

from mlbackends.base.patterns import pattern
from mlbackends.host.host import Host

_AT_PYTORCH = ("torch", "torchvision", "torchaudio", "torchtext", "xformers")
_PYTORCH_BUILD = pattern(r"cpu|xpu|cu\d+|rocm[\d.]+")
_UV = pattern(r"(?m)^uv\s*=")


def manager_of(host: Host) -> str:
    """Return "uv" for an environment that uv made, "" for any other."""
    return "uv" if _UV.search(host.read(f"{host.python.get('prefix', '')}/pyvenv.cfg", 65536)) else ""


def package_command(python: str, manager: str, verb: str, *arguments: str) -> str:
    """Return the command of pip, or of uv in its environments. verb: install or uninstall."""
    words = [python, "-m", "pip", verb]
    if manager == "uv":
        words = ["uv", "pip", verb, *(["--python", python] if python != "python" else [])]
    return " ".join(map(quoted, (*words, *arguments)))


def reinstall_command(python: str, manager: str, name: str, version: str) -> str:
    """Return the command that reinstalls a package and changes no other."""
    options = ["--reinstall-package", name] if manager == "uv" else ["--force-reinstall"]
    # PyPI has no version with a local part; PyTorch has an index for each build (pytorch/pytorch#111716).
    build = version.partition("+")[2]
    if name in _AT_PYTORCH and _PYTORCH_BUILD.fullmatch(build):
        options += ["--index-url", f"https://download.pytorch.org/whl/{build}"]
    requirement = f"{name}=={version}" if version else name
    return package_command(python, manager, "install", *options, "--no-deps", requirement)


def quoted(word: str) -> str:
    """Quote a word for a shell; a redacted report has ~ for the home folder, which must stay unquoted."""
    home, slash, rest = word.partition("/")
    if home == "~" and slash and rest:
        return f"~/{shlex.quote(rest)}"
    return shlex.quote(word)
