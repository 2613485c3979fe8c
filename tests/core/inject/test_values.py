"""Files of switches, and single settings above them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mlbackends.base.errors import BadInput, UnknownName
from mlbackends.inject.values import requested

if TYPE_CHECKING:
    from pathlib import Path


def written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_bytes(text.encode())
    return str(path)


def test_a_setting_goes_before_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, "a.toml", "[cudnn]\nbenchmark = true\nenabled = false\n")
    assert requested(("cudnn.benchmark=false",), (path,)) == {
        "cudnn.benchmark": False,
        "cudnn.enabled": False,
    }


def test_files_that_agree_go_together(tmp_path: Path) -> None:
    one = written(tmp_path, "a.toml", "cudnn.benchmark = true\n")
    other = written(tmp_path, "b.toml", "[cudnn]\nbenchmark = true\n")
    assert requested((), (one, other)) == {"cudnn.benchmark": True}


def test_files_that_do_not_are_both_named(tmp_path: Path) -> None:
    one = written(tmp_path, "a.toml", "cudnn.benchmark = true\n")
    other = written(tmp_path, "b.toml", "cudnn.benchmark = false\n")
    with pytest.raises(BadInput, match=r"b\.toml and .*a\.toml set cudnn\.benchmark") as caught:
        requested((), (one, other))
    assert "--set cudnn.benchmark=VALUE" in caught.value.hint


def test_a_file_s_error_has_its_file_line_and_key(tmp_path: Path) -> None:
    path = written(tmp_path, "a.toml", "[cudnn]\nenabled = false\nbenchmrk = true\n")
    with pytest.raises(BadInput, match=r"a\.toml:3: .*cudnn\.benchmrk"):
        requested((), (path,))


def test_the_same_setting_twice_with_different_values_is_an_error() -> None:
    with pytest.raises(BadInput, match=r"cudnn\.benchmark is set twice"):
        requested(("cudnn.benchmark=1", "cudnn.benchmark=0"), ())


def test_an_unknown_name_gets_the_nearest_one() -> None:
    with pytest.raises(UnknownName) as caught:
        requested(("cudnn.benchmrk=1",), ())
    assert "cudnn.benchmark" in caught.value.hint
