"""Python packages as others tell them: importlib.metadata, NumPy and PyTorch themselves."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

from mlbackends.base import registry
from mlbackends.host.host import Host
from mlbackends.host.interpreter import query
from mlbackends.host.python.packages import normalised
from mlbackends.model.records import Presence
from mlbackends.survey import survey
from mlbackends_probes import packages


def test_the_distributions_are_those_of_importlib_metadata() -> None:
    theirs: dict[str, str] = {}
    for dist in importlib.metadata.distributions():
        # The first on the import path is the one that is imported; a broken one has no name.
        if name := dist.metadata["Name"]:
            theirs.setdefault(normalised(name), dist.version)

    assert packages.find(Host()).facts["distributions"] == dict(sorted(theirs.items()))


@pytest.mark.skipif(not find_spec("numpy"), reason="NumPy is not installed")
def test_the_blas_of_numpy_is_the_one_that_it_shows() -> None:
    config = _answer(sys.executable, "import json, numpy; print(json.dumps(numpy.show_config(mode='dicts')))")
    blas, lapack = (config["Build Dependencies"][name] for name in ("blas", "lapack"))

    facts = registry.load(registry.PROBES, "numpy").find(Host()).facts

    assert facts.get("blas") == blas.get("name")
    assert facts.get("blas_version") == blas.get("version")
    assert facts.get("lapack") == lapack.get("name")
    assert facts.get("blas_folder") == blas.get("lib directory")
    compiler = config["Compilers"]["c"]
    assert facts.get("compiler") == f"{compiler['name']} {compiler['version']}"


_TORCH = """
import json, torch
print(json.dumps({
    "version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip,
    "xpu": getattr(torch.version, "xpu", None), "debug": torch.version.debug,
    "git": torch.version.git_version, "capability": torch.backends.cpu.get_cpu_capability(),
    "file": torch.__file__,
}))
"""


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("forced", ["", "default", "avx2"])
def test_torch_tells_of_itself_what_we_tell(forced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLBACKENDS_TORCH_PYTHON names an interpreter with torch where ours has none."""
    python = os.environ.get("MLBACKENDS_TORCH_PYTHON", sys.executable)
    if "MLBACKENDS_TORCH_PYTHON" not in os.environ and not find_spec("torch"):
        pytest.skip("torch is not installed")
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    if forced:
        monkeypatch.setenv("ATEN_CPU_CAPABILITY", forced)
    theirs = _answer(python, _TORCH)

    report = survey(("torch",), Host(python=query(python)), Presence.LOADABLE).probes["torch"]

    assert report.version == theirs["version"]
    assert report.presence is Presence.LOADABLE
    facts = report.facts
    assert facts.get("cuda_version") == theirs["cuda"]
    assert facts.get("hip_version") == theirs["hip"]
    assert facts.get("xpu_version") == theirs["xpu"]
    assert facts["debug"] == theirs["debug"]
    assert facts["git_version"] == theirs["git"]
    assert facts["location"] == os.path.dirname(theirs["file"])
    if Host().machine == "x86_64" and sys.platform == "linux":
        assert facts["cpu_capability"] == theirs["capability"]


def _answer(python: str, code: str) -> dict[str, Any]:
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer
