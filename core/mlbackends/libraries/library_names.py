"""The names of library files: without version and hash, and as each system spells them."""

import re
from functools import cache

from mlbackends.base.patterns import pattern
from mlbackends.base.tables import table
from mlbackends.host.host import Host

_ENDING = pattern(r"\.(?:so(?:\.[0-9]\w*)*|(?:[0-9][0-9.]*\.)?dylib)$")
_NUMBERS = pattern(r"[_.-]?[0-9][0-9._-]*$")
_LINUX_NAME = pattern(r"\b(lib[\w-]+)(\.so(?:\.[0-9]+)*)?")
_HASH_LENGTHS = range(6, 41)
_HASH_DIGITS = frozenset("0123456789abcdef")


def stem_of(file_name: str) -> str:
    """Return a library file's name without hash and version, "" if it is not a shared library.

    libcudnn.so.9 -> libcudnn; libgomp-24e2ab19.so.1.0.0 -> libgomp; libomp.5.dylib -> libomp.
    """
    if file_name[-4:].lower() == ".dll":
        stem = file_name[:-4].partition("_v0.")[0]  # libopenblas_v0.3.27--3aa239bc...: scipy's
    elif ending := _ENDING.search(file_name, 1):
        stem = file_name[: ending.start()]
    else:
        return ""
    if "-" not in stem:
        return stem
    # auditwheel adds a hash to a name, and a version may follow it.
    name, _, mark = stem.rpartition("-")
    digits, _, rest = mark.partition(".")
    is_hash = len(digits) in _HASH_LENGTHS and _HASH_DIGITS.issuperset(digits)
    is_marked = name and is_hash and all(sign.isalnum() or sign in "._" for sign in rest)
    return name if is_marked else stem


def key_of(host: Host, stem: str) -> str:
    """Return the form in which stems are compared.

    On Windows that is Linux's name in lower case and without the numbers at its end, so that cublas64_12 and
    libcublas are equal: names.json lists what Windows calls each library.
    """
    if host.platform != "win32":
        return stem
    bare = _NUMBERS.sub("", stem.lower())
    return _names_of_windows().get(bare, bare)


@cache
def _names_of_windows() -> dict[str, str]:
    return {
        _NUMBERS.sub("", file.lower().removesuffix(".dll")): _NUMBERS.sub("", name.lower())
        for name, files in table("libraries/names").items()
        for file in files
    }


def native_names(host: Host, text: str) -> str:
    """Return a text with Linux's names of libraries replaced by those that this system uses."""
    if host.platform == "linux":
        return text

    def native_name(match: re.Match[str]) -> str:
        if host.platform == "win32":
            return str(table("libraries/names").get(match[1], [match[1]])[0])
        return f"{match[1]}.dylib" if match[2] else match[0]

    return _LINUX_NAME.sub(native_name, text)


def library_path(host: Host) -> tuple[str, list[str]]:
    """Return the variable that lists folders for the loader, and its elements as written."""
    if host.platform == "win32":
        return "PATH", host.folders("PATH")
    variable = "DYLD_LIBRARY_PATH" if host.platform == "darwin" else "LD_LIBRARY_PATH"
    value = host.env(variable)
    if host.platform != "darwin":
        value = value.replace(";", ":")  # ld.so(8) accepts either
    return variable, value.split(":") if value else []
