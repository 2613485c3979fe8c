"""What a traced command's environment says, beside what its user set."""

from __future__ import annotations

import pytest

from mlbackends.tracing.capture.environment import combined

WANTED = {
    "ONEDNN_VERBOSE": "2",
    "DNNL_VERBOSE": "2",
    "ONEDNN_VERBOSE_TIMESTAMP": "1",
    "MKL_VERBOSE": "1",
    "MKL_VERBOSE_OUTPUT_FILE": "/trace.log",
}


def test_without_settings_of_the_users_all_is_as_wanted() -> None:
    assert combined(WANTED, {}) == (WANTED, [])


@pytest.mark.parametrize(
    ("name", "theirs", "value"),
    [
        ("ONEDNN_VERBOSE", "1", "2"),
        ("ONEDNN_VERBOSE", "0", "2"),
        ("ONEDNN_VERBOSE", "none", "2"),
        ("ONEDNN_VERBOSE", "all", "2,all"),
        ("ONEDNN_VERBOSE", "dispatch,profile_exec", "2,dispatch,profile_exec"),
        ("ONEDNN_VERBOSE", "1,filter=matmul", "2,filter=matmul"),
        ("DNNL_VERBOSE", "1", "2"),
        ("DNNL_VERBOSE", "all", "2"),  # up to 2.4 nothing but a number is read
        ("MKL_VERBOSE", "2", "2"),
        ("MKL_VERBOSE", "0", "1"),
        ("MKL_VERBOSE", "yes", "1"),
        ("MKL_VERBOSE_OUTPUT_FILE", "/theirs.log", "/trace.log"),
    ],
)
def test_the_richer_setting_stays(name: str, theirs: str, value: str) -> None:
    assert combined(WANTED, {name: theirs})[0] == {**WANTED, name: value, **_moved(name, theirs)}


def _moved(name: str, theirs: str) -> dict[str, str]:
    """Return what the older name says under the newer one, which counts for newer versions."""
    return {"ONEDNN_VERBOSE": "2,all"} if (name, theirs) == ("DNNL_VERBOSE", "all") else {}


def test_a_filter_that_was_asked_for_replaces_the_users() -> None:
    wanted = {"ONEDNN_VERBOSE": "1,filter=conv"}
    assert combined(wanted, {"ONEDNN_VERBOSE": "2,filter=matmul"})[0] == {"ONEDNN_VERBOSE": "2,filter=conv"}


def test_timestamps_that_the_user_wants_stay() -> None:
    theirs = {"ONEDNN_VERBOSE_TIMESTAMP": "1"}
    assert combined({"ONEDNN_VERBOSE_TIMESTAMP": "0"}, theirs)[0] == theirs


def test_another_file_of_mkls_gives_way_and_that_is_told() -> None:
    _, ((level, text),) = combined(WANTED, {"MKL_VERBOSE_OUTPUT_FILE": "/theirs.log"})
    assert level == "WARNING"
    assert "/theirs.log" in text
    for wanted, file in ((WANTED, "/trace.log"), ({"ONEDNN_VERBOSE": "1"}, "/theirs.log")):
        assert not combined(wanted, {"MKL_VERBOSE_OUTPUT_FILE": file})[1]
