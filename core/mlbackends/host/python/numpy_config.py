"""What numpy and scipy were built with, from the __config__.py that their builds write.

The file is Python and is read as text. Its lists of SIMD extensions are filled in at run time from a
compiled module, so they cannot be read in this way.

Source: numpy and scipy, __config__.py.in; numpy.distutils.system_info for numpy before 1.26.
"""

import re

from mlbackends.base.patterns import pattern
from mlbackends.host.host import Host
from mlbackends.model.records import FactValue

_SECTION = pattern(r"""['"](blas|lapack|c)['"]\s*:\s*\{(.*?)\}""", re.DOTALL)
_ITEM = pattern(r"""['"]([\w +]+)['"]\s*:\s*r?(['"])(.*?)\2""")
_OLD = pattern(r"^(?:blas_opt_info|blas_ilp64_opt_info)\s*=\s*\{(.*?)\}\s*$", re.MULTILINE)
_OLD_LIBRARIES = pattern(r"""['"]libraries['"]\s*:\s*\[\s*['"]([^'"]+)['"]""")
_EXTENSIONS = (".so", ".dylib", ".dll")


def config_facts(host: Host, location: str, module: str) -> dict[str, FactValue]:
    """Return the facts in __config__.py and the folder of bundled libraries.

    location: the module's folder.
    """
    text = host.read(f"{location}/__config__.py", 1 << 18)
    sections = dict(reversed(_SECTION.findall(text)))
    blas, lapack, compiler = (
        {key: value for key, _, value in _ITEM.findall(sections.get(name, ""))}
        for name in ("blas", "lapack", "c")
    )
    of_distutils = (_OLD_LIBRARIES.search(section) for section in _OLD.findall(text))
    values = {
        "blas": blas.get("name") or next((match[1] for match in of_distutils if match), ""),
        "blas_version": blas.get("version", ""),
        "blas_configuration": " ".join(blas.get("openblas configuration", "").split()),
        "blas_folder": blas.get("lib directory", ""),
        "lapack": lapack.get("name", ""),
        "lapack_version": lapack.get("version", ""),
        "compiler": " ".join(filter(None, (compiler.get("name"), compiler.get("version")))),
    }
    # Meson writes "unknown" for what a dependency does not state.
    facts: dict[str, FactValue] = {
        name: value for name, value in values.items() if value and value != "unknown"
    }
    # numpy.libs (Linux, Windows) or numpy/.dylibs (macOS)
    beside = f"{location.rpartition('/')[0]}/{module}.libs"
    names = host.listdir(beside) + host.listdir(f"{location}/.dylibs")
    if bundled := [name for name in names if any(ending in name for ending in _EXTENSIONS)]:
        facts["bundled_libraries"] = list[object](bundled)
    return facts
