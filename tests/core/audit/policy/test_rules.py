"""What is wrong in a policy is told in one line: file, line, key, and the near name."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path

import pytest

from mlbackends.audit.policy.expectation import Expectation
from mlbackends.audit.policy.rules import Rule, read
from mlbackends.base.errors import BadInput
from mlbackends.model.audit import Severity

RULE = 'schema = 1\n[[rule]]\nid = "a"\n'

#: Policies that are wrong, by what is: each with its text, where RULE stands for the head of a rule, and what
#: the message says. Long ones are made here.
WRONG = {
    name: (text.replace("RULE\n", RULE, 1), message)
    for name, text, message in json.loads(Path(__file__).with_name("wrong.json").read_text(encoding="utf-8"))
} | {
    "nested deeply": (
        "schema = 1\nname = " + "[" * 100 + "]" * 100,
        "policy.toml:2: nested more than",
    ),
    "thousands of digits": ("schema = " + "1" * 5000, "thousands of digits"),
    **{
        f"a number beyond all with {key}": (
            f'{RULE}fact = "memory.total_bytes"\n{key} = {value}\n',
            "is larger than any value",
        )
        for key in ("min", "max", "equals", "not_equals")
        for value in ("9" * 400, f"-{'9' * 400}")
    },
    "a text beyond all": (
        f'{RULE}fact = "memory.total_bytes"\nmin = "{"9" * 400}"\n',
        "is larger than any value",
    ),
    "a list with one beyond all": (
        f'{RULE}fact = "cpu.cores"\none_of = [1, {"9" * 400}]\n',
        "is larger than any value",
    ),
    "a long name": (f'{RULE}check = "' + "a" * 3000 + '"\n', "is longer than 2000"),
}


def write(folder: Path, text: str, name: str = "policy.toml") -> str:
    """Write a policy, and return its path."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_told_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as error:
        read(write(tmp_path, text))

    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_rule_has_what_its_table_says(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """schema = 1
name = "A"
when = "cpu present"
[[rule]]
check = "cpu.cores >= 8"
id = "cores"
severity = "warning"
missing = "skip"
when = ["host.platform == linux"]
message = "M"
why = "W"
hint = "H"
command = "C"
documentation = "https://example.org"
""",
    )

    policy = read(path)

    rule = policy.rules[0]
    assert isinstance(rule, Rule)
    assert (rule.id, rule.severity, rule.missing) == ("cores", Severity.WARNING, "skip")
    assert (rule.message, rule.why, rule.hint, rule.command) == ("M", "W", "H", "C")
    assert [condition.title for condition in rule.when] == ["cpu: present", "host.platform: linux"]
    assert (rule.place.file, rule.place.line) == (path, 6)
    assert isinstance(rule.expectation, Expectation)
    assert rule.expectation.title == "cpu.cores: >= 8"


def test_an_extending_file_replaces_a_rule_and_keeps_the_others(tmp_path: Path) -> None:
    write(
        tmp_path,
        f'{RULE}check = "cpu present"\n[[rule]]\nid = "b"\ncheck = "cpu present"\n',
        "parts/base.toml",
    )
    path = write(tmp_path, f'extends = ["parts/base.toml"]\n{RULE}check = "cpu.cores >= 8"\n')

    policy = read(path)

    assert [(rule.id, os.path.basename(rule.place.file)) for rule in policy.rules] == [
        ("a", "policy.toml"),
        ("b", "base.toml"),
    ]


def test_a_file_that_two_extend_is_taken_once(tmp_path: Path) -> None:
    write(tmp_path, f'{RULE}check = "cpu present"\n', "base.toml")
    for name in ("one.toml", "two.toml"):
        write(tmp_path, 'schema = 1\nextends = ["base.toml"]\n', name)
    path = write(tmp_path, 'schema = 1\nextends = ["one.toml", "two.toml"]\n')

    assert [rule.id for rule in read(path).rules] == ["a"]


def test_two_files_that_say_the_same_id_are_refused(tmp_path: Path) -> None:
    for name in ("one.toml", "two.toml"):
        write(tmp_path, f'{RULE}check = "cpu present"\n', name)
    path = write(tmp_path, 'schema = 1\nextends = ["one.toml", "two.toml"]\n')

    with pytest.raises(BadInput, match=r"two\.toml:3: rule\.id: 'a' is the id of"):
        read(path)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/etc/passwd", "must be a path relative to this file"),
        ("https://example.org/a.toml", "must be a path relative to this file"),
        ("../outside.toml", "must be in the policy's folder"),
        ("link.toml", "must be in the policy's folder"),
        ("gone.toml", "cannot be read: No such file"),
        ("policy.toml", "a circle"),
        ("back.toml", "back.toml:2: extends: 'policy.toml' leads back to this file: a circle"),
        ("pipe", "not a regular file"),
        (".", "must be in the policy's folder"),
        ("folder", "not a regular file"),
    ],
)
def test_what_cannot_be_extended(tmp_path: Path, name: str, said: str) -> None:
    inside = tmp_path / "inside"
    write(tmp_path, "schema = 1\n", "outside.toml")
    write(inside, 'schema = 1\nextends = ["policy.toml"]\n', "back.toml")
    (inside / "link.toml").symlink_to(tmp_path / "outside.toml")
    (inside / "folder").mkdir()
    os.mkfifo(inside / "pipe")
    path = write(inside, f'schema = 1\nextends = ["{name}"]\n')

    with pytest.raises(BadInput) as error:
        read(path)

    assert said in str(error.value)
    assert "policy.toml" in str(error.value)


def test_a_chain_of_files_is_not_followed_for_ever(tmp_path: Path) -> None:
    for number in range(80):
        write(tmp_path, f'schema = 1\nextends = ["{number + 1}.toml"]\n', f"{number}.toml")

    with pytest.raises(BadInput, match="more than 50 files"):
        read(str(tmp_path / "0.toml"))


def test_a_chain_of_needs_may_be_long(tmp_path: Path) -> None:
    rules = [
        f'[[rule]]\nid = "r{i}"\ncheck = "cpu present"\n' + (f'needs = "r{i + 1}"\n' if i < 2999 else "")
        for i in range(3000)
    ]
    policy = read(write(tmp_path, "schema = 1\n" + "".join(rules)))

    assert policy.order[0] == "r2999"
    assert policy.rules[0].id == "r0"


def test_a_probe_that_another_package_adds_may_be_missing(tmp_path: Path) -> None:
    path = write(tmp_path, f'added_probes = ["our_card"]\n{RULE}check = "our_card.cards >= 1"\n')

    assert read(path).rules[0].id == "a"


def test_the_day_of_a_waiver(tmp_path: Path) -> None:
    text = f'{RULE}check = "cpu present"\n[[waive]]\nrule = "a"\nuntil = 2027-01-31\nreason = "r"\n'

    assert read(write(tmp_path, text)).waivers["a"].until == dt.date(2027, 1, 31)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"schema = 1\nname = '\xff'\n", "policy.toml:2: not UTF-8"),
        (b"schema = 1 # " + b"x" * (2 << 20), "is larger than 1 MiB"),
        (b"\0", "policy.toml:1"),
        (b"", "lacks schema"),
    ],
)
def test_bytes_that_are_no_policy(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "policy.toml").write_bytes(data)

    with pytest.raises(BadInput, match=said):
        read(str(tmp_path / "policy.toml"))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_passed_over(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "policy.toml").write_bytes("schema = 1\n".encode(encoding))

    assert read(str(tmp_path / "policy.toml")).rules == ()


@pytest.mark.parametrize("path", ["/dev/zero", "/nowhere", "a\0b", "/"])
def test_what_is_no_file_is_refused_at_once(path: str) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read(path)


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    with path.open("wb") as file:
        file.truncate(100 << 20)

    with pytest.raises(BadInput, match="is larger than 1 MiB"):
        read(str(path))
