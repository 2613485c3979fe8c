"""A probe asked with one library in front of those of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from mlbackends.host.host import Host
from mlbackends.model.records import Library, Presence, ProbeReport
from mlbackends.survey import survey

if TYPE_CHECKING:
    from tests.conftest import FakeLibrary


class Asked(Protocol):
    """Survey a probe with a library before whatever this machine has, and return that library, too.

    library: its file, or the name and soname of a fake. variables: of the environment.
    """

    def __call__(
        self, probe: str, library: Path | tuple[str, str], timeout: Any = ..., **variables: str
    ) -> tuple[ProbeReport, Library]: ...


@pytest.fixture
def asked(fake_library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> Asked:
    def ask(
        probe: str, library: Path | tuple[str, str], timeout: Any = 5.0, **variables: str
    ) -> tuple[ProbeReport, Library]:
        path = library if isinstance(library, Path) else fake_library(*library)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        # Loaders of this machine's are asked too, and are to have no drivers.
        nowhere = {"OCL_ICD_VENDORS": "/nowhere", "VK_DRIVER_FILES": "/nowhere.json"}
        for name, value in {**nowhere, "LD_LIBRARY_PATH": str(path.parent), **variables}.items():
            monkeypatch.setenv(name, value)
        host = Host(python={"path": []})
        report = survey((probe,), host, Presence.USABLE, timeout=timeout).probes[probe]
        (asked_one,) = (copy for copy in report.libraries if copy.path == str(path))
        return report, asked_one

    return ask
