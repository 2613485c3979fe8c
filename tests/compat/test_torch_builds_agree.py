"""The table of torch's symbols against the torch that is installed."""

from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from mlbackends.libraries.elf import ElfImage
from mlbackends.loading.dynamic_symbols import DynamicSymbols
from mlbackends.loading.torch_builds import builds, defining, is_of_torch


@pytest.mark.parametrize("name", ["libc10.so", "libtorch_cpu.so", "libtorch_python.so"])
def test_what_the_installed_torch_defines_is_in_the_table(name: str) -> None:
    spec = find_spec("torch")
    path = Path(spec.origin or "").parent / "lib" / name if spec else Path()
    installed = version("torch").partition("+")[0] if spec else ""
    if not path.is_file() or installed not in {build.version for build in builds()}:
        pytest.skip("no torch for Linux that the table lists")
    with ElfImage(str(path)) as image:
        defined = {symbol.decode() for symbol in DynamicSymbols(image).names()}
    own = [symbol for symbol in defined if is_of_torch(symbol)]
    assert len(own) > 500
    wrong = [s for s in own if installed not in {build.version for build in defining([s])}]
    assert not wrong
    # eugr/spark-vllm-docker#141: a constructor of c10::MessageLogger that one release had.
    logger = "_ZN3c1013MessageLoggerC1EPKciib"
    has = installed in {build.version for build in defining([logger])}
    assert name != "libc10.so" or has == (logger in defined)
