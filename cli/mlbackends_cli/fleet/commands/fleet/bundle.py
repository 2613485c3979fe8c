"""Make one file that runs backends where only Python is installed.

The file has backends and the packages that it needs. `backends fleet run --push FILE` sends it to nodes, and
`python3 FILE info` runs it by hand: it unpacks itself into a private temporary folder, which it removes at
the end. `python3 FILE info --python EXE` inspects another environment than this folder. The nodes need Linux
or macOS, and a Python for which the file is: 3.11 or newer.

Without --platform it has what is installed here, for this version of Python and this kind of processor. Files
are compared with the hashes that were recorded at their installation. With --platform, pip downloads wheels
from its index, or with --no-index only from the folders of --find-links. Equal wheels or installed files give
equal bytes.

Examples:
  backends fleet bundle
  backends fleet bundle --platform manylinux_2_28_x86_64 --platform manylinux_2_28_aarch64 --output all.pyz
  backends fleet bundle --platform manylinux_2_28_x86_64 --python-version 3.12 --no-index --find-links wheels/
  backends fleet run --hosts @compute --push all.pyz
"""

import hashlib

from mlbackends.base.errors import BadInput
from mlbackends.base.patterns import pattern
from mlbackends.fleet import bundle
from mlbackends_cli.fleet.sources import HELP
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import TypedPath, option
from mlbackends_cli.output import refuse_unwritable, write

_VERSION = pattern(r"3\.(?:1[1-9]|[2-9]\d)")
_PLATFORM = pattern(r"(?:manylinux|musllinux|macosx)\w{1,60}")


@documented()
@option("--platform platforms TAG", HELP["platform"], many=True)
@option("--python-version pythons X.Y", HELP["python_version"], many=True)
@option("--find-links folders DIR", HELP["find_links"], many=True, kind=TypedPath())
@option("--no-index", "Do not use an index of packages.")
@option("--output FILE", "Write to this file.", usual="backends.pyz", kind=TypedPath())
def command(
    platforms: tuple[str, ...],
    pythons: tuple[str, ...],
    folders: tuple[str, ...],
    no_index: bool,
    output: str,
) -> None:
    refuse_unwritable(output)
    if not platforms and (pythons or folders or no_index):
        raise BadInput("--python-version, --find-links and --no-index are for --platform")
    if wrong := [name for name in platforms if not _PLATFORM.fullmatch(name)]:
        raise BadInput(f"{wrong[0]} is not a platform of Linux or macOS", "such as manylinux_2_28_x86_64")
    if wrong := [name for name in pythons if not _VERSION.fullmatch(name)]:
        raise BadInput(f"{wrong[0]} is not a version of Python from 3.11 on, such as 3.12")
    options = ["--no-index"] * no_index + [f"--find-links={folder}" for folder in folders]
    pythons = pythons or bundle.PYTHONS
    data = bundle.downloaded(platforms, pythons, options) if platforms else bundle.installed()
    write(data, output)
    if output != "-":
        digest = hashlib.sha256(data).hexdigest()
        write(f"{output}: {len(data) / 1e6:.1f} MB, {bundle.described(data)}\nSHA-256: {digest}")
