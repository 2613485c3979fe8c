"""Accelerate: Apple's BLAS, LAPACK and signal processing, part of macOS.

Finds:    the framework's folder on macOS.
Usable:   dgemm multiplies two matrices right.
Caveats:  since macOS 11 the library is not a file: the loader has it in its shared cache. It opens by the
          path that is reported here, and `stat` finds nothing.
Source:   macOS 11 release notes, "dynamic linker"; Apple, "Accelerate"; veclib_types, macOS 13.3.
"""

import re

from mlbackends.base.reasons import Reason
from mlbackends.host.declared import not_valid, steering
from mlbackends.host.host import Host
from mlbackends.libraries.blas_symbols import require_product
from mlbackends.libraries.c_calls import CDLL
from mlbackends.model.records import Answer, Finding, Library

_FRAMEWORK = "/System/Library/Frameworks/Accelerate.framework"


def find(host: Host) -> Finding:
    """Look for the framework's folder; the library itself is in the loader's cache."""
    if host.platform != "darwin":
        message = f"Accelerate is part of macOS; this is {host.platform}"
        return Finding(reasons=(Reason("not-this-platform", message),))
    if not host.is_dir(_FRAMEWORK):
        return Finding(reasons=(Reason("not-found", f"no {_FRAMEWORK}"),))
    facts = steering(host, "accelerate")
    text = ""
    for folder in ("Versions/A/Resources", "Resources", "Versions/Current/Resources"):
        text = text or host.read(f"{_FRAMEWORK}/{folder}/Info.plist", 65536)
    # A binary property list gives nothing.
    entries = dict(re.findall(r"<key>(\w+)</key>\s*<string>([\w.]{1,40})</string>", text))
    version = entries.get("CFBundleShortVersionString", "")
    if "CFBundleVersion" in entries:
        facts["build"] = entries["CFBundleVersion"]
    library = Library(
        name="accelerate",
        path=f"{_FRAMEWORK}/Accelerate",
        version=version,
        found_by="dyld-shared-cache",
        owner="macOS",
        wins=True,
        wins_because="macOS has one copy",
    )
    return Finding((library,), (), facts, version, warnings=not_valid(host, "accelerate"))


def load(opened: CDLL, library: Library) -> Answer:
    """See whether the newer LAPACK is there."""
    return Answer(library, facts={"new_lapack": hasattr(opened, "dgemm$NEWLAPACK")})


def use(opened: CDLL, library: Library) -> Answer:
    """Multiply two matrices."""
    require_product(opened)
    return Answer(library)
