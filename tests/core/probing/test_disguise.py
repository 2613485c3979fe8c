"""Stand-ins: what names somebody is gone, what was equal stays equal, and a probe reads what it read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.model.redaction import COMMON_WORDS, Names
from mlbackends.probing.disguise import Disguise, NoDisguise

NAMES = Names(node="node7.cluster.example", user="alice", home="/home/alice")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/home/alice/venv/lib", "/home/user/venv/lib"),
        ("/home/alice", "/home/user"),
        ("/home/alicent/x", "/home/other-1/x"),
        ("/home/bob/x:/home/bob/y", "/home/other-1/x:/home/other-1/y"),
        ("run by alice on node7", "run by user on host"),
        ("node7.cluster.example", "host"),
        ("node71", "node71"),
        ("malice", "malice"),
        ("/scratch/alice/x", "/scratch/user/x"),
        ("https://me:pass@example.org/x", "https://***@example.org/x"),
        ("a" * 40 + "://me:pass@h", "a" * 40 + "://***@h"),
        ("https://***@example.org/x", "https://***@example.org/x"),
        ("link 52:54:00:ab:cd:ef up", "link 02:00:00:00:00:01 up"),
        (
            "GPU-5a1e3f2c-0b4d-4c8e-9f00-112233445566",
            "GPU-00000000-0000-4000-8000-000000000001",
        ),
        ("1321020045678", "0000000000000"),
        ("version 1.2.3.4", "version 1.2.3.4"),
    ],
)
def test_what_names_somebody_gets_a_stand_in_of_its_form(before: str, after: str) -> None:
    assert Disguise(NAMES, ["1321020045678"]).text(before) == after


def test_what_was_equal_stays_equal_and_what_differed_differs() -> None:
    disguise = Disguise(NAMES)
    one = disguise.text("5a1e3f2c-0b4d-4c8e-9f00-112233445566")
    other = disguise.text("5a1e3f2c-0b4d-4c8e-9f00-112233445567")
    assert one != other
    assert disguise.text("again 5A1E3F2C-0B4D-4C8E-9F00-112233445566") == f"again {one}"


def test_it_counts_what_it_has_replaced() -> None:
    disguise = Disguise(NAMES)
    disguise.text("alice alice node7 https://me:x@h")
    assert disguise.replaced == {"user name": 2, "host name": 1, "login in an address": 1}


@pytest.mark.parametrize("name", sorted(COMMON_WORDS))
def test_a_name_that_is_a_word_is_replaced_in_the_home_folder_alone(name: str) -> None:
    disguise = Disguise(Names(node=name, user=name, home=f"/people/{name}"))
    assert disguise.text(f"/dev/{name}/x") == f"/dev/{name}/x"
    assert disguise.text(f"/people/{name}/x") == "/home/user/x"


def test_bytes_that_are_no_text_stay_what_they_are() -> None:
    data = b"\xff\xfe alice \x80"
    assert Disguise(NAMES).data(data) == b"\xff\xfe user \x80"


def test_names_of_fields_stay_and_paths_as_keys_do_not() -> None:
    value = {"alice": ["/home/alice"], "/home/alice/x": {"n": 1}}
    assert Disguise(NAMES).value(value) == {"alice": ["/home/user"], "/home/user/x": {"n": 1}}


def test_without_a_disguise_only_secrets_go() -> None:
    text = "alice on node7 at /home/alice, 52:54:00:ab:cd:ef, https://me:pass@h/"
    assert NoDisguise().text(text) == text.replace("me:pass", "***")


_PIECES = st.sampled_from(
    [
        "alice",
        "node7",
        "/home/alice",
        "/home/bob",
        "52:54:00:ab:cd:ef",
        "x",
        "/",
        " ",
        ":",
        "=",
        "-",
    ]
)


@given(st.lists(_PIECES | st.text(max_size=6), max_size=30))
def test_a_second_disguise_changes_nothing_but_numbers(pieces: list[str]) -> None:
    def without_numbers(text: str) -> str:
        return "".join("0" if letter.isdigit() else letter for letter in text)

    once = Disguise(NAMES).text("".join(pieces))
    assert without_numbers(Disguise(NAMES).text(once)) == without_numbers(once)


@given(st.lists(_PIECES, max_size=30))
def test_no_home_folder_of_a_person_is_left(pieces: list[str]) -> None:
    text = Disguise(NAMES).text(" ".join(pieces))
    assert "/home/alice" not in text
    assert "/home/bob" not in text
    assert "52:54:00" not in text
