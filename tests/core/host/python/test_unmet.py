"""Requirements that are not met, compared with what pip's own `check` prints of the same folder.

Each environment is a folder of metadata of its own making; pip reads it in a process whose import path has
nothing else. How pip names a problem differs from ours, so the packages and what they need are compared.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mlbackends.host.host import Host
from mlbackends.host.python.requirements import unmet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytest.importorskip("pip", reason="an environment made by uv has no pip to compare with")

#: Prints the output of `pip check` for each folder that is named, as JSON.
CHECK = """
import contextlib, io, json, logging, sys
import pip._internal.commands.check
from pip._internal.cli.main import main
own = [path for path in sys.path if "site-packages" not in path]
for folder in sys.argv[1:]:
    sys.path[:] = [*own, folder]
    logging.disable(logging.NOTSET)
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        main(["check", "--disable-pip-version-check"])
    print(json.dumps(output.getvalue()))
"""
#: The two sentences of pip: "a 1.0 requires b, which is not installed." and "a 1.0 has requirement b<2, ...".
PROBLEM = re.compile(
    r"^(\S+) \S+ (?:requires (\S+), which is not installed|has requirement ([\w.-]+).*)",
    re.MULTILINE,
)
Problems = set[tuple[str, str]]


def install(site: Path, name: str, *requires: str, version: str = "1.0", headers: str = "") -> None:
    """Write the metadata of a distribution; the folder has its name as wheels spell it."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = [f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}{headers}"]
    lines += [f"Requires-Dist: {text}" for text in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n\nRequires-Dist: text==9\n", encoding="utf-8")


def of_pip(folders: list[Path]) -> Iterator[Problems]:
    """Yield the problems that pip finds in each folder."""
    command = [sys.executable, "-c", CHECK, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        found = PROBLEM.findall(json.loads(line))
        yield {(normal(package), normal(first or other)) for package, first, other in found}


def ours(folder: Path) -> Problems:
    python = Host().python | {"path": [str(folder)]}
    rows = unmet(Host(python=python))
    return {(row["package"], row["needs"]) for row in rows if row["needs"] != "python"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


NAMES = ["alpha", "Beta.Lib", "gamma_delta", "epsilon-9", "zeta", "eta", "theta", "iota"]
VERSIONS = [
    "1.0", "1.0.0", "2.1", "2.1.3", "0.9", "10.0", "2.0rc1", "1!1.0", "1.5.dev3", "2.1.post1",
    "2.1+cu128", "2.10", "3.0a2", "1.0+local.1",
]  # fmt: skip
CLAUSES = [
    "", ">=1.0", "<2", "==2.1", "==2.*", "!=1.0", "~=2.1", "~=1.0.0", ">2.0", "<=2.1", "===2.1",
    ">=1.0,<3,!=2.1", "==1!1.0", ">=2.0rc1", "<3.0a3", "==2.1+cu128", "!=2.1.*", " (>=1.0)", ">=1 , <9",
]  # fmt: skip
MARKERS = [
    "", "", "sys_platform == 'linux'", "sys_platform == 'win32'", "python_version >= '3.8'",
    "python_version < '3.0'", "extra == 'gpu'", "python_version > '3' and extra == 'a-b'",
    "extra == 'x' or os_name == 'posix'", "platform_machine not in 'vax pdp11'",
    "implementation_name == 'cpython' and (os_name == 'nt' or os_name == 'posix')",
    "python_full_version >= '3.9.1'", "'linux' in sys_platform", "platform_release >= '1'",
    "(sys_platform == 'win32') or ('3.8' <= python_version)", "extra != 'x'", "os_name != 'posix'",
]  # fmt: skip


def drawn(site: Path, seed: int) -> None:
    """Write an environment that a seed decides: names in any spelling, versions, clauses, markers, extras."""
    draw = random.Random(seed)
    site.mkdir()
    for name in draw.sample(NAMES, draw.randint(2, len(NAMES))):
        requires = []
        for other in draw.choices([*NAMES, "absent", "Not_There"], k=draw.randint(0, 4)):
            spelled = draw.choice([other, other.upper(), re.sub("[-_.]", "_", other)])
            extra = draw.choice(["", "", "[fast]", "[a,b]"])
            marker = draw.choice(MARKERS)
            clause = draw.choice(CLAUSES)
            requires.append(f"{spelled}{extra}{clause}{' ; ' * bool(marker)}{marker}")
        install(site, name, *requires, version=draw.choice(VERSIONS))


def test_forty_drawn_environments_have_the_problems_of_pip_check(tmp_path: Path) -> None:
    folders = [tmp_path / f"site{seed}" for seed in range(40)]
    for seed, folder in enumerate(folders):
        drawn(folder, seed)

    expected = list(of_pip(folders))

    assert len(set().union(*expected)) > 40
    assert [ours(folder) for folder in folders] == expected


def edge(site: Path) -> None:
    """Write what draws do not have: URLs, folded and odd headers, old formats, leftovers, duplicates."""
    url = "https://example.org/a;b/part-1.0.whl"
    install(site, "by-url", f"part @ {url}", f"gone @ {url} ; python_version > '3'", "x@https://e.org/x")
    install(site, "part", "Part-Of.Part>1")
    install(site, "windows-lines", "part>=9\r")
    install(site, "needs-python", "part", headers="\nRequires-Python: >=3.8, !=3.9.*")
    install(site, "lower-case", headers="\nrequires-dist: nothing-here")
    install(site, "pre-release", "epoch>=1.0", "dev>1", "candidate>=2.0")
    install(site, "epoch", version="1!0.5")
    install(site, "dev", version="1.1.dev1")
    install(site, "candidate", version="2.0rc1")
    (site / "without_metadata-1.0.dist-info").mkdir()
    (site / "~eft_over-1.0.dist-info").mkdir()
    install(site, "asks-one-without", "without-metadata", "eft-over")
    egg = site / "Old_Egg-3.0-py3.11.egg-info"
    egg.mkdir()
    (egg / "PKG-INFO").write_text("Metadata-Version: 1.2\nName: Old-Egg\nVersion: 3.0\n\n")
    (egg / "requires.txt").write_text(
        "part>=2\nfine-is-it\n\n[gpu]\ncuda\n\n[:python_version < '3']\nfutures\n\n"
        "[:sys_platform != 'vax']\nhere>=1\n\n[docs:python_version > '3']\nsphinx\n"
    )
    file = site / "distutils_made-0.1-py3.11.egg-info"
    file.write_text("Metadata-Version: 1.1\nName: distutils-made\nVersion: 0.1\n")
    install(site, "asks-eggs", "old.egg<3", "distutils_made>=0.1")


def test_urls_old_formats_and_odd_headers_are_read_as_pip_reads_them(tmp_path: Path) -> None:
    edge(tmp_path)

    (expected,) = of_pip([tmp_path])

    assert ("old-egg", "here") in expected
    # Newer releases of pip count what has no metadata as installed.
    assert ours(tmp_path) == expected | {("asks-one-without", "without-metadata")}


def test_two_installations_of_a_name_count_as_the_one_that_is_imported(tmp_path: Path) -> None:
    install(tmp_path / "first", "part", version="2.0")
    install(tmp_path / "second", "part", version="1.0")
    install(tmp_path / "second", "asks", "part<2")
    python = Host().python | {"path": [str(tmp_path / "first"), str(tmp_path / "second")]}

    rows = unmet(Host(python=python))

    assert rows == [
        {"package": "asks", "version": "1.0", "needs": "part", "wanted": "<2", "installed": "2.0"}
    ]


def test_a_python_that_is_too_old_is_an_unmet_requirement(tmp_path: Path) -> None:
    install(tmp_path, "new", headers="\nRequires-Python: >=4.2")
    python = Host().python | {"path": [str(tmp_path)], "version": "3.11.7"}

    (row,) = unmet(Host(python=python))

    assert (row["needs"], row["wanted"], row["installed"]) == ("python", ">=4.2", "3.11.7")


def test_what_is_no_requirement_costs_nothing_else(tmp_path: Path) -> None:
    install(tmp_path, "odd", "==1.0", "; ;", "a b c", "\x00", "[", "part ; nonsense", "missing")

    assert ours(tmp_path) == {("odd", "missing")}
