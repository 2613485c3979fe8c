"""The Python of an unpacked image, which is not run."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from mlbackends.base.errors import Incomplete
from mlbackends.host.host import Host
from mlbackends.loading.image import python_below, started_as

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ELF files of this machine are needed")
CORE = Path(sys.modules["msgspec._core"].__file__ or "")


def image(root: Path, *files: str) -> Host:
    """Make a file system of empty files, of which those named python are ELF files."""
    for file in files:
        path = root / file.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(CORE, path) if "bin/python" in file else path.write_text("")
    return Host(str(root))


DEBIAN = (
    "/usr/bin/python3.12 /usr/lib/python3.12/os.py /usr/lib/python3.12/lib-dynload/x /etc/debian_version"
    " /usr/local/lib/python3.12/dist-packages/x /usr/lib/python3/dist-packages/x"
    " /usr/lib/python3.12/site-packages/x"
)
FEDORA = (
    "/usr/bin/python3.12 /usr/lib64/python3.12/os.py /usr/lib/python3.12/site-packages/x"
    " /usr/lib64/python3.12/site-packages/x /usr/local/lib/python3.12/site-packages/x"
)
CONDA = "/opt/conda/bin/python3.12 /opt/conda/lib/python3.12/os.py /opt/conda/lib/python3.12/site-packages/x"


@pytest.mark.parametrize(
    ("files", "path"),
    [
        (
            DEBIAN,
            (
                "/usr/lib/python3.12 /usr/lib/python3.12/lib-dynload /usr/local/lib/python3.12/dist-packages"
                " /usr/lib/python3/dist-packages"
            ),
        ),
        (
            FEDORA,
            (
                "/usr/lib64/python3.12 /usr/local/lib/python3.12/site-packages"
                " /usr/lib64/python3.12/site-packages /usr/lib/python3.12/site-packages"
            ),
        ),
        (CONDA, "/opt/conda/lib/python3.12 /opt/conda/lib/python3.12/site-packages"),
    ],
)
def test_the_import_path_is_that_of_the_distribution(tmp_path: Path, files: str, path: str) -> None:
    python, notes = python_below(image(tmp_path, *files.split()))
    assert python["path"] == path.split()
    assert (python["version"], python["machine"]) == ("3.12", Host().machine)
    assert notes == (f"for {python['executable']}, from its files, with no environment variables set",)


@pytest.mark.parametrize("settings", ["", "include-system-site-packages = true\n"])
def test_a_virtual_environment_has_its_own_packages_and_what_its_pth_files_add(
    tmp_path: Path, settings: str
) -> None:
    site = "/opt/venv/lib/python3.12/site-packages"
    host = image(tmp_path, *DEBIAN.split(), f"{site}/x", "/srv/code/x.py")
    (tmp_path / "opt/venv/bin").mkdir()
    (tmp_path / "opt/venv/bin/python").symlink_to("/usr/bin/python3.12")
    (tmp_path / "opt/venv/pyvenv.cfg").write_text(f"home = /usr/bin\n{settings}")
    (tmp_path / site[1:] / "own.pth").write_text("# code\n/srv/code\nimport os\n/srv/gone\n")
    system, notes = python_below(host)
    python, _ = python_below(host, "/opt/venv/bin/python")
    assert notes[1] == "other Pythons there, which --python names: /opt/venv/bin/python"
    assert python["path"][2:4] == [site, "/srv/code"]
    assert python["path"][4:] == (system["path"][2:] if settings else [])
    assert (python["prefix"], python["base_prefix"]) == ("/opt/venv", "/usr")


@pytest.mark.parametrize(
    ("files", "executable", "words"),
    [
        ("/etc/passwd", "", "this root has no Python in /usr/local/bin, /usr/bin, /opt/conda/bin"),
        ("/usr/bin/python3.12", "", "lacks its standard library in /usr/lib"),
        ("/usr/bin/python3.12", "/opt/python", "is not a Python interpreter: No such file or directory"),
        ("/usr/bin/pythonic /usr/lib/python3.12/os.py", "/usr/bin/pythonic", "its name is /usr/bin/pythonic"),
        ("/opt/python /usr/x", "/opt/python", "is not a Python interpreter: the file is empty"),
    ],
)
def test_what_lacks_a_python_is_one_line(tmp_path: Path, files: str, executable: str, words: str) -> None:
    with pytest.raises(Incomplete, match=words):
        python_below(image(tmp_path, *files.split()), executable)


def test_a_process_that_cannot_be_asked_is_followed_by_how_it_was_started(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "env"], check=True)
    code = "import sys; print(*sys.path, sep=':', flush=True); sys.stdin.read()"
    variables = {"PATH": "env/bin", "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        ["env/bin/python", "-I", "-c", code], cwd=tmp_path, env=variables, stdin=PIPE, stdout=PIPE, text=True
    ) as process:
        assert process.stdout and process.stdin
        path = process.stdout.readline().strip().split(":")
        host = Host("/", pid=process.pid)
        python, notes = python_below(host, started_as(host))
        process.stdin.close()
    assert python["executable"] == f"{tmp_path}/env/bin/python"
    assert python["path"] == [str(tmp_path), *filter(os.path.isdir, path)]
    assert notes == (f"for {tmp_path}/env/bin/python, from its files",)
