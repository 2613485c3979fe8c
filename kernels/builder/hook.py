"""hatchling's build hook.

With a C compiler the wheel is py3-none-PLATFORM and contains the native libraries (compilation.py). Those
that cannot be compiled are left out: a trace then uses a terminal or a pipe, and attention uses numpy. A
wheel without native libraries is py3-none-any. MLBACKENDS_NATIVE: off compiles nothing, require fails if a
library cannot be compiled. MLBACKENDS_PLATFORM: the wheel's PLATFORM if it is not this machine's; wheels.py
sets it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "kernels" / "builder"))

from compilation import TREE, NotCompiled, compile_into  # noqa: E402  from this folder

#: The package that holds the compiled libraries.
PACKAGE = "mlbackends_kernels/lib"
COMPLETIONS = {
    "backends.bash": "share/bash-completion/completions/backends",
    "backends.fish": "share/fish/vendor_completions.d/backends.fish",
    "backends.zsh": "share/zsh/site-functions/_backends",
}


def add_compiled(version: str, build_data: dict[str, Any]) -> None:
    """Compile for a wheel or an editable install, and name the wheel by its platform."""
    setting = os.environ.get("MLBACKENDS_NATIVE", "auto")
    if setting not in ("auto", "off", "require"):
        sys.exit(f"MLBACKENDS_NATIVE is {setting!r}; it may be auto, off or require")
    editable = version == "editable"
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    name = os.environ.get("MLBACKENDS_PLATFORM") or platform
    folder = TREE if editable else ROOT / "build" / name
    if setting == "off":
        shutil.rmtree(folder, ignore_errors=True)
        return
    try:
        files = compile_into(folder, required=setting == "require")
    except NotCompiled as reason:
        if setting == "require":
            raise
        files = {"native libraries": str(reason)}
    for file, why in files.items():
        if why:
            print(f"mlbackends: built without {file}: {why}", file=sys.stderr)
        elif not editable:
            build_data["force_include"][str(folder / file)] = f"{PACKAGE}/{file}"
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{name}"


def manual_pages() -> Iterable[Path]:
    """Make every man page from the code, and return their paths."""
    folder = ROOT / "build" / "man"
    shutil.rmtree(folder, ignore_errors=True)
    tree = [str(ROOT / part) for part in ("core", "cli", "probes", "kernels")]
    generator = str(ROOT / "man" / "generate.py")
    # -I: pip's own sitecustomize would take folders from PYTHONPATH that an earlier editable install names.
    program = (
        f"import runpy, sys; sys.path[:0] = {[*tree, *sys.path]!r};"
        f"sys.argv = {[generator, '--into', str(folder)]!r};"
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    subprocess.run([sys.executable, "-I", "-c", program], check=True)
    return folder.iterdir()


class LayoutHook(BuildHookInterface[Any]):
    """The hook that hatchling calls for a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the native libraries, and add man pages and completions to what belongs under share/."""
        for page in sorted(manual_pages()):
            build_data["shared_data"][str(page)] = f"share/man/man{page.suffix[1:]}/{page.name}"
        for name, place in COMPLETIONS.items():
            file = ROOT / "man" / "completions" / name
            if file.is_file():
                build_data["shared_data"][str(file)] = place
        add_compiled(version, build_data)
