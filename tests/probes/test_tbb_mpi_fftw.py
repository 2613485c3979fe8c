from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from mlbackends.base import registry
from mlbackends.host.host import Host
from mlbackends.model.records import Presence

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import FakeLibrary
    from tests.probes.conftest import Asked


MPI = """
#include <string.h>
int SIGN;
int MPI_Get_version(int *major, int *minor) { *major = 3; *minor = 1; return 0; }
int MPI_Get_library_version(char *text, int *length) {
    strcpy(text, "TEXT");
    *length = strlen(text);
    return STATUS;
}
"""


def mpi_source(sign: str, text: str, status: int = 0) -> str:
    return MPI.replace("SIGN", sign).replace("TEXT", text).replace("STATUS", str(status))


def test_tbb_tells_version_and_interface(asked: Asked, fake_library: FakeLibrary) -> None:
    source = """
    int TBB_runtime_interface_version(void) { return 12110; }
    const char *TBB_runtime_version(void) { return "2021.11.0"; }
    """

    report, library = asked("tbb", fake_library("tbb", "libtbb.so.12", source=source))

    assert (library.presence, library.version) == (Presence.LOADABLE, "2021.11.0")
    assert report.facts == {"interface_version": 12110}


def test_an_old_tbb_has_an_interface_alone(asked: Asked, fake_library: FakeLibrary) -> None:
    source = "int TBB_runtime_interface_version(void) { return 11103; }\n"

    report, library = asked("tbb", fake_library("tbb", "libtbb.so.2", source=source))

    assert (library.presence, library.version) == (Presence.LOADABLE, "")
    assert report.facts == {"interface_version": 11103}


@pytest.mark.parametrize(
    ("sign", "text", "implementation", "version"),
    [
        ("ompi_mpi_comm_world", "Open MPI v4.1.4, package: Debian", "openmpi", "4.1.4"),
        ("MPIR_Process", "MPICH Version:      4.0.2\\nMPICH ABI: 14:0:2", "mpich", "4.0.2"),
        ("MPIR_Process", "Intel(R) MPI Library 2021.9 for Linux* OS", "intel", "2021.9"),
        ("nothing", "Something Else 7", None, ""),
    ],
)
def test_mpi_tells_whose_it_is(
    asked: Asked,
    fake_library: FakeLibrary,
    sign: str,
    text: str,
    implementation: str | None,
    version: str,
) -> None:
    path = fake_library("mpi", "libmpi.so.12", source=mpi_source(sign, text))

    report, library = asked("mpi", path)

    assert (library.presence, library.version) == (Presence.LOADABLE, version)
    assert report.facts.get("implementation") == implementation
    assert report.facts["standard"] == "3.1"
    assert report.facts["library_version"] == text.partition("\\n")[0]


def test_an_mpi_that_returns_an_error_is_only_found(asked: Asked, fake_library: FakeLibrary) -> None:
    path = fake_library("mpi", "libmpi.so.40", source=mpi_source("x", "", 13))

    _, library = asked("mpi", path)

    assert library.presence is Presence.FOUND
    assert "MPI_Get_library_version returned 13" in library.reasons[0].message


def recorded(tmp_path: Path, built: Path, launcher: str) -> Host:
    """Compose a machine with this libmpi and mpirun as a link to `launcher`."""
    root = tmp_path / "root"
    (root / "usr/lib").mkdir(parents=True)
    (root / "usr/bin").mkdir()
    shutil.copy(built, root / "usr/lib")
    (root / "usr/bin" / launcher).write_text("#!/bin/sh\ntouch /tmp/was-run\n")
    (root / "usr/bin/mpirun").symlink_to(launcher)
    environment = {"PATH": "/nowhere::/usr/bin:/usr/bin", "OMPI_MCA_btl": "tcp"}
    (tmp_path / "host.json").write_text(json.dumps({"environment": environment}))
    return Host(str(tmp_path))


def test_launchers_are_found_and_not_started(tmp_path: Path, fake_library: FakeLibrary) -> None:
    built = fake_library("mpi", "libmpi.so.40", source=mpi_source("ompi_mpi_comm_world", ""))

    finding = registry.load("mlbackends_probes", "mpi").find(recorded(tmp_path, built, "orterun"))

    assert finding.warnings == ()
    assert finding.facts == {
        "environment": {"OMPI_MCA_btl": "tcp"},
        "launchers": [{"name": "mpirun", "path": "/usr/bin/mpirun", "real_path": "/usr/bin/orterun"}],
    }


def test_a_launcher_of_another_implementation_is_a_conflict(
    tmp_path: Path, fake_library: FakeLibrary
) -> None:
    built = fake_library("mpi", "libmpi.so.40", source=mpi_source("ompi_mpi_comm_world", ""))

    (warning,) = (
        registry.load("mlbackends_probes", "mpi").find(recorded(tmp_path, built, "mpiexec.hydra")).warnings
    )

    assert warning.code == "conflict"
    assert warning.message == "/usr/bin/mpirun belongs to mpich, and /usr/lib/libmpi.so.40 is openmpi"


FFTW = """
#include <stdlib.h>
const char PREFIX_version[] = "VERSION";
typedef struct { REAL *from, *into; int n; } plan;
plan *PREFIX_plan_dft_1d(int n, REAL *from, REAL *into, int sign, unsigned flags) {
    plan *made = malloc(sizeof *made);
    made->from = from; made->into = into; made->n = n;
    return sign == -1 && flags == 64 ? made : 0;
}
void PREFIX_execute(plan *made) {
    for (int i = 0; i < made->n; i++) {
        made->into[2 * i] = made->from[0] SPOIL;
        made->into[2 * i + 1] = 0;
    }
}
"""


def fftw_source(prefix: str, real: str, version: str = "fftw-3.3.10-sse2-avx", spoil: str = "") -> str:
    words = {"PREFIX": prefix, "REAL": real, "VERSION": version, "SPOIL": spoil}
    text = FFTW
    for word, value in words.items():
        text = text.replace(word, value)
    return text


@pytest.mark.parametrize(
    ("stem", "prefix", "real", "precision"),
    [
        ("libfftw3", "fftw", "double", "double"),
        ("libfftw3f", "fftwf", "float", "float"),
        ("libfftw3l", "fftwl", "long double", "long double"),
    ],
)
def test_fftw_transforms_in_its_precision(
    asked: Asked, fake_library: FakeLibrary, stem: str, prefix: str, real: str, precision: str
) -> None:
    path = fake_library("fftw", f"{stem}.so.3", source=fftw_source(prefix, real))

    report, library = asked("fftw", path)

    assert (library.presence, library.version) == (Presence.USABLE, "3.3.10")
    told = {**library.facts, **report.facts}
    assert told == {"precision": precision, "instruction_sets": ["sse2", "avx"]}


def test_a_wrong_transform_is_not_usable(asked: Asked, fake_library: FakeLibrary) -> None:
    path = fake_library("fftw", "libfftw3.so.3", source=fftw_source("fftw", "double", spoil="* 2"))

    _, library = asked("fftw", path)

    assert [reason.code for reason in library.reasons] == ["wrong-result"]


def test_quadruple_precision_is_asked_for_its_version_only(asked: Asked, fake_library: FakeLibrary) -> None:
    path = fake_library("fftw", "libfftw3q.so.3", source=fftw_source("fftwq", "double"))

    _, library = asked("fftw", path)

    assert (library.presence, library.version) == (Presence.LOADABLE, "3.3.10")
    assert [reason.code for reason in library.reasons] == ["no-use-check"]


def test_an_fftw_without_a_version_misses_a_symbol(asked: Asked, fake_library: FakeLibrary) -> None:
    _, library = asked("fftw", fake_library("fftw", "libfftw3.so.3", source="int nothing;\n"))

    assert library.presence is Presence.FOUND
    assert [reason.code for reason in library.reasons] == ["missing-symbol"]
