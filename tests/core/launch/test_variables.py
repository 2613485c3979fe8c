"""The environment that instances get."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.launch.cores import topology_of
from mlbackends.launch.options import Options
from mlbackends.launch.planning import plan
from mlbackends.launch.variables import child_environment

if TYPE_CHECKING:
    from pathlib import Path

MACHINE = topology_of([(0, 2), (1, 3)], {}, (0,), range(4))
NEITHER = Options(use_default_allocator=True, disable_iomp=True)
AFFINITY = "granularity=fine,compact,1,0"


def made(options: Options, environment: dict[str, str]) -> dict[str, str]:
    return child_environment(options, plan(options, MACHINE, {}), environment)[0]


@pytest.fixture
def conda(tmp_path: Path) -> dict[str, str]:
    """Make an environment in which all three libraries are installed."""
    (tmp_path / "lib").mkdir()
    for name in ("tcmalloc", "jemalloc", "iomp5"):
        (tmp_path / "lib" / f"lib{name}.so").touch()
    return {"CONDA_PREFIX": str(tmp_path), "HOME": "/none"}


def preloaded(environment: dict[str, str]) -> list[str]:
    paths = environment.get("LD_PRELOAD", "").split(":")
    return [path.rpartition("/lib")[2].removesuffix(".so") for path in paths if path]


def test_each_instance_gets_as_many_threads_as_cores() -> None:
    assert made(NEITHER, {"A": "b"}) == {"A": "b", "OMP_NUM_THREADS": "2"}


def test_a_value_of_the_environment_stays_and_is_told() -> None:
    environment, notices = child_environment(NEITHER, plan(NEITHER, MACHINE, {}), {"OMP_NUM_THREADS": "7"})
    assert environment["OMP_NUM_THREADS"] == "7"
    assert notices[0][0] == "WARNING"
    assert "'7'" in notices[0][1] and "'2'" in notices[0][1]


def test_openmp_comes_first_then_the_allocator_then_what_was_there(conda: dict[str, str]) -> None:
    environment = made(Options(), conda | {"LD_PRELOAD": "libm.so.6"})
    assert preloaded(environment)[:2] == ["iomp5", "tcmalloc"]
    assert environment["LD_PRELOAD"].endswith(":libm.so.6")
    assert environment["KMP_AFFINITY"] == AFFINITY
    assert environment["KMP_BLOCKTIME"] == "1"
    assert "MALLOC_CONF" not in environment


def test_hyper_threads_of_one_core_get_no_affinity_of_openmps(conda: dict[str, str]) -> None:
    environment = made(Options(use_logical_core=True), conda)
    assert "KMP_AFFINITY" not in environment
    assert environment["KMP_BLOCKTIME"] == "1"


def test_without_intels_openmp_there_are_no_settings_for_it(conda: dict[str, str]) -> None:
    environment = made(Options(disable_iomp=True), conda)
    assert preloaded(environment) == ["tcmalloc"]
    assert not any(name.startswith("KMP_") for name in environment)


def test_jemalloc_that_was_asked_for_is_tuned(conda: dict[str, str]) -> None:
    environment = made(Options(enable_jemalloc=True), conda)
    assert preloaded(environment) == ["iomp5", "jemalloc"]
    assert environment["MALLOC_CONF"] == ("oversize_threshold:1,background_thread:true,metadata_thp:auto")


def test_jemalloc_that_was_only_found_is_left_as_it_is(conda: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "lib" / "libtcmalloc.so").unlink()
    environment = made(Options(), conda)
    assert preloaded(environment) == ["iomp5", "jemalloc"]
    assert "MALLOC_CONF" not in environment


def test_the_default_allocator_is_none_of_both(conda: dict[str, str]) -> None:
    assert preloaded(made(Options(use_default_allocator=True), conda)) == ["iomp5"]


def test_an_allocator_that_is_preloaded_already_is_not_joined_by_another(
    conda: dict[str, str], tmp_path: Path
) -> None:
    theirs = str(tmp_path / "lib" / "libjemalloc.so")
    environment = made(Options(disable_iomp=True), conda | {"LD_PRELOAD": theirs})
    assert environment["LD_PRELOAD"] == theirs


def test_both_allocators_are_refused(conda: dict[str, str]) -> None:
    with pytest.raises(RuntimeError, match="at the same time"):
        made(Options(enable_tcmalloc=True, enable_jemalloc=True), conda)


def test_a_library_that_is_preloaded_already_is_not_added_again(
    conda: dict[str, str], tmp_path: Path
) -> None:
    theirs = str(tmp_path / "lib" / "libtcmalloc.so")
    options = Options(enable_tcmalloc=True, disable_iomp=True)
    assert made(options, conda | {"LD_PRELOAD": theirs})["LD_PRELOAD"] == theirs
