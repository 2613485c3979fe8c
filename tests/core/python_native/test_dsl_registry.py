"""DSLs that are registered, and what they say of themselves."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from mlbackends.python_native import dsl_registry


class Dsl:
    """A DSL that counts how often it is asked. What is an exception, it raises."""

    def __init__(self, available: Any = True, version: Any = "1.0") -> None:
        self.available, self.version = available, version
        self.asked = 0

    def runtime_available(self) -> Any:
        self.asked += 1
        if isinstance(self.available, Exception):
            raise self.available
        return self.available

    def runtime_version(self) -> Any:
        self.asked += 1
        if isinstance(self.version, Exception):
            raise self.version
        return self.version

    def register_op_override(self, *args: Any, **kwargs: Any) -> None: ...

    def deregister_op_overrides(self) -> None: ...


def test_two_are_there_from_the_start_and_the_hidden_one_is_not_listed() -> None:
    assert dsl_registry.list_all_dsls() == ("cutedsl", "triton")


def test_one_that_is_registered_is_listed_last() -> None:
    dsl_registry.register_dsl("mine", Dsl())

    assert dsl_registry.list_all_dsls() == ("cutedsl", "triton", "mine")
    assert "mine" in dsl_registry.list_available_dsls()


@pytest.mark.parametrize("name", [None, 3, b"mine", ["mine"]])
def test_a_name_that_is_no_text_is_refused(name: Any) -> None:
    with pytest.raises(TypeError, match="must be a str"):
        dsl_registry.register_dsl(name, Dsl())


@pytest.mark.parametrize("name", ["", " ", "\t\n"])
def test_a_blank_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must not be blank"):
        dsl_registry.register_dsl(name, Dsl())


def test_one_that_lacks_a_function_is_refused_by_naming_it() -> None:
    class Half:
        def runtime_available(self) -> bool:
            return True

        def deregister_op_overrides(self) -> None: ...

    half: Any = Half()
    with pytest.raises(TypeError, match="'mine' lacks runtime_version, register_op_override"):
        dsl_registry.register_dsl("mine", half)
    assert dsl_registry.get_dsl_module("mine") is None


def test_each_question_is_asked_once() -> None:
    mine = Dsl()
    dsl_registry.register_dsl("mine", mine)

    for _ in range(3):
        assert dsl_registry.is_dsl_available("mine") is True
        assert dsl_registry.get_dsl_version("mine") == "1.0"
    assert mine.asked == 2


def test_none_as_a_version_is_kept_too() -> None:
    mine = Dsl(version=None)
    dsl_registry.register_dsl("mine", mine)

    assert dsl_registry.get_dsl_version("mine") is None
    assert dsl_registry.get_dsl_version("mine") is None
    assert mine.asked == 1


def test_the_same_module_again_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    mine = Dsl()
    dsl_registry.register_dsl("mine", mine)
    assert dsl_registry.is_dsl_available("mine")

    with caplog.at_level(logging.DEBUG):
        dsl_registry.register_dsl("mine", mine)

    assert dsl_registry.is_dsl_available("mine")
    assert mine.asked == 1
    assert [record.levelname for record in caplog.records] == ["DEBUG"]


def test_another_module_takes_the_place_and_is_asked_anew(
    caplog: pytest.LogCaptureFixture,
) -> None:
    dsl_registry.register_dsl("mine", Dsl(available=True, version="1.0"))
    assert dsl_registry.is_dsl_available("mine")
    assert dsl_registry.get_dsl_version("mine") == "1.0"

    dsl_registry.register_dsl("mine", Dsl(available=False, version="2.0"))

    assert not dsl_registry.is_dsl_available("mine")
    assert dsl_registry.get_dsl_version("mine") == "2.0"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


@pytest.mark.parametrize("error", [ImportError("gone"), RuntimeError("broken")])
def test_one_that_raises_is_not_there_and_has_no_version(error: Exception) -> None:
    dsl_registry.register_dsl("mine", Dsl(available=error, version=error))

    assert dsl_registry.is_dsl_available("mine") is False
    assert dsl_registry.get_dsl_version("mine") is None


def test_only_a_broken_one_is_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    dsl_registry.register_dsl("gone", Dsl(available=ImportError()))
    dsl_registry.register_dsl("broken", Dsl(available=RuntimeError()))

    dsl_registry.list_available_dsls()

    errors = [each for each in caplog.records if each.levelname == "ERROR"]
    assert [record.getMessage() for record in errors] == [
        "the DSL broken cannot say whether it is there"
    ]


def test_one_that_nobody_registered_is_not_there() -> None:
    assert dsl_registry.is_dsl_available("nobodys") is False
    assert dsl_registry.get_dsl_version("nobodys") is None
    assert dsl_registry.get_dsl_module("nobodys") is None


def test_what_is_no_bool_is_made_one() -> None:
    dsl_registry.register_dsl("mine", Dsl(available="yes"))

    assert dsl_registry.is_dsl_available("mine") is True
