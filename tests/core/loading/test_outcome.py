"""A resolution as checks, one for each fault."""

import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mlbackends.base.errors import Incomplete
from mlbackends.host.host import Host
from mlbackends.loading.outcome import outcome_of
from mlbackends.loading.packages import resolve
from mlbackends.model.loading import Fault, PackageLoading, Resolution, Verdict


@pytest.mark.parametrize("verdict", Verdict)
def test_no_check_of_a_package_that_does_not_load_states_that_it_loads(verdict: Verdict) -> None:
    faults, fallbacks = (Fault("missing-library", "liba.so", "a"),), (Fault("not-opened-later", "b.so", "b"),)
    package = PackageLoading("one", "1.0", verdict, faults, fallbacks)
    first, second = outcome_of(Resolution("", "", "", "", packages=(package,))).checks
    assert first.message == f"one 1.0: {verdict}: a"
    assert ("loads" in second.message) is (verdict in (Verdict.FALLS_BACK, Verdict.BREAKS))


@pytest.fixture
def site() -> Iterator[Path]:
    """Make a folder of packages that another user than root can reach, and be one."""
    with TemporaryDirectory(prefix="backends-") as folder:
        os.chmod(folder, 0o755)
        site = Path(folder, "site-packages")
        (site / "one").mkdir(parents=True)
        (site / "one/core.so").write_bytes(b"")
        (site / "one-1.0.dist-info").mkdir()
        (site / "one-1.0.dist-info/RECORD").write_text("one/core.so,,\n")
        yield site


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or os.geteuid() != 0, reason="needs root, to give it up"
)
@pytest.mark.parametrize(
    ("closed", "words"),
    [
        ("", "site-packages cannot be read"),
        ("one-1.0.dist-info", "one-1.0.dist-info/RECORD: Permission denied"),
        ("one", "one/core.so: Permission denied"),
    ],
)
def test_what_may_not_be_read_cannot_be_determined(site: Path, closed: str, words: str) -> None:
    os.chmod(site / closed, 0o700)
    host = Host(python={"path": [str(site)], "version": "3.11.2"}, environment={})
    os.seteuid(65534)
    try:
        with nullcontext() if closed else pytest.raises(Incomplete, match=words):
            (package,) = resolve(host).packages
            assert package.verdict is Verdict.UNKNOWN
            assert package.faults[0].message.endswith(words)
            assert package.faults[0].command == f"chmod a+rX {site / closed}"
    finally:
        os.seteuid(0)
