"""The table of options, which every parser is made from."""

from __future__ import annotations

from msgspec.structs import fields

from mlbackends.launch.options import OPTIONS, Options


def test_every_field_has_its_row_and_its_default() -> None:
    assert [(option.name, option.default) for option in OPTIONS] == [
        (field.name, field.default) for field in fields(Options)
    ]


def test_every_row_says_what_it_does() -> None:
    assert all(option.help.endswith(".") and option.group for option in OPTIONS)


def test_words_are_joined_by_dashes_or_underscores() -> None:
    flags = {option.name: option.flags for option in OPTIONS}
    assert flags["node_id"] == ("--node-id", "--node_id")
    assert flags["rank"] == ("--rank",)
    assert flags["module"] == ("-m", "--module")
    assert flags["core_list"] == ("--cores", "--core-list", "--core_list")


def test_only_options_with_a_value_have_a_name_for_it() -> None:
    assert all((option.kind is bool) == (not option.metavar) for option in OPTIONS)
