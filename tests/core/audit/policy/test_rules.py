"""What is wrong in a policy is told in one line: file, line, key, and the near name."""

from __future__ import annotations

import datetime as dt
import os
from typing import TYPE_CHECKING

import pytest

from mlbackends.audit.policy.expectation import Expectation
from mlbackends.audit.policy.rules import Rule, read
from mlbackends.base.errors import BadInput
from mlbackends.model.audit import Severity

if TYPE_CHECKING:
    from pathlib import Path

RULE = 'schema = 1\n[[rule]]\nid = "a"\n'

WRONG = {
    "no schema": ('name = "x"\n', "policy.toml:1: lacks schema"),
    "another schema": ("schema = 2\n", "policy.toml:1: schema: is 2, and this version"),
    "truth for a number": ("schema = true\n", ":1: schema: must be a whole number, not true"),
    "unknown key": (
        "schema = 1\nrules = []\n",
        ":2: rules: there is no such key; did you mean 'rule'?",
    ),
    "key with a line end": ('schema = 1\n"a\\nb" = 1\n', r":2: 'a\nb': there is no such key"),
    "unknown key of a rule": (
        f'{RULE}check = "cpu present"\nseverty = "note"\n',
        ":5: rule.severty: there is no such key in [[rule]]; did you mean 'severity'?",
    ),
    "rule is a table": ("schema = 1\n[rule]\n", ":2: rule: must be a list of tables"),
    "no id": ('schema = 1\n[[rule]]\ncheck = "cpu present"\n', ":2: rule: lacks id"),
    "bad id": (
        'schema = 1\n[[rule]]\nid = "a b"\ncheck = "cpu present"\n',
        ":3: rule.id: 'a b' is not an id",
    ),
    "same id": (
        f'{RULE}check = "cpu present"\n[[rule]]\nid = "a"\ncheck = "cpu present"\n',
        ":6: rule.id: 'a' is the id of",
    ),
    "code of a hazard": (
        'schema = 1\n[[rule]]\nid = "openmp-two-runtimes"\ncheck = "cpu present"\n',
        "is the code of a known hazard",
    ),
    "nothing asserted": (
        f'{RULE}fact = "cpu.cores"\n',
        ":2: rule: has neither check nor one of present",
    ),
    "two assertions": (
        f'{RULE}fact = "cpu.cores"\nmin = 1\nmax = 2\n',
        ":6: rule.max: a rule asserts one thing, and min is in this one already",
    ),
    "no fact": (f"{RULE}min = 1\n", ":4: rule.min: needs a fact"),
    "check and fact": (
        f'{RULE}check = "cpu present"\nfact = "cpu"\n',
        ":5: rule.fact: does not go with check",
    ),
    "names without a snapshot": (
        f'{RULE}check = "cpu present"\nnames = "*"\n',
        ":5: rule.names: does not go with check",
    ),
    "unknown probe": (
        f'{RULE}check = "cdnn >= 9"\n',
        ":4: rule.check: there is no probe named 'cdnn'; did you mean 'cudnn'?",
    ),
    "unknown fact": (
        f'{RULE}fact = "cpu.capabilty"\nequals = "AVX2"\n',
        ":4: rule.fact: there is no value named cpu.capabilty; did you mean cpu.capability?",
    ),
    "unknown field of devices": (
        f'{RULE}check = "nvidia.devices[*].memory_byte >= 1GiB"\n',
        "devices have no 'memory_byte'; did you mean 'memory_bytes'?",
    ),
    "unknown field in brackets": (
        f'{RULE}check = "nvidia.devices[knd == cuda] count == 1"\n',
        "devices have no 'knd'; did you mean 'kind'?",
    ),
    "devices without brackets": (
        f'{RULE}check = "nvidia.devices.name == x"\n',
        "write nvidia.devices[*].name",
    ),
    "a probe is no list": (
        f'{RULE}check = "nvidia[0].name == x"\n',
        "nvidia is not a list: write nvidia.devices[...]",
    ),
    "an open bracket": (f'{RULE}check = "nvidia.devices[*.name == x"\n', "a name such as"),
    "one equals sign": (
        f'{RULE}check = "cpu.cores = 8"\n',
        ":4: rule.check: '=' is not an operator; write ==",
    ),
    "unknown operator": (
        f'{RULE}check = "cpu.features contain avx"\n',
        "'contain' is not an operator; did you mean 'contains'?",
    ),
    "no operator": (f'{RULE}check = "cpu.cores"\n', "an operator (===, ==,"),
    "no value": (f'{RULE}check = "cpu.cores >= "\n', "a value is needed where it ends"),
    "and": (
        f'{RULE}check = "cpu.cores >= 8 and cpu.avx2 == true"\n',
        "there is no 'and' and no 'or'",
    ),
    "no list": (
        f'{RULE}check = "cpu.capability in AVX2"\n',
        "a list such as [AVX2, AVX512] is needed",
    ),
    "beyond present": (f'{RULE}check = "cpu present here"\n', "'here' cannot follow"),
    "bare probe with equals": (
        f'{RULE}fact = "cudnn"\nequals = "9"\n',
        "names a probe, which has no such value",
    ),
    "a text is not a number": (
        f'{RULE}check = "cpu.cores >= many"\n',
        "the value is a number, and 'many' is none",
    ),
    "a truth has no order": (f'{RULE}check = "cpu.avx2 >= 1"\n', "write == true or == false"),
    "off the ladder": (
        f'{RULE}check = "cpu.capability >= AVX3"\n',
        "'AVX3' is none of DEFAULT < AVX2 < AVX512; did you mean 'AVX2'?",
    ),
    "at_least without a ladder": (
        f'{RULE}fact = "cpu.vendor"\nat_least = "Intel"\n',
        "the value has no order",
    ),
    "no version": (f'{RULE}check = "host.libc_version >= new"\n', "'new' is not a version"),
    "bad specifier": (
        f'{RULE}fact = "cudnn"\nversion = "9.1"\n',
        ":5: rule.version: '9.1' is not a version specifier",
    ),
    "empty specifier": (
        f'{RULE}fact = "cudnn"\nversion = ""\n',
        ":5: rule.version: a version specifier is missing",
    ),
    "version of a number": (
        f'{RULE}fact = "cpu.cores"\nversion = ">=1"\n',
        "cpu.cores is not a text but a whole number",
    ),
    "min of a text": (
        f'{RULE}fact = "cpu.vendor"\nmin = 1\n',
        "cpu.vendor is not a number but a text",
    ),
    "min of nan": (
        f'{RULE}fact = "cpu.cores"\nmin = nan\n',
        ":5: rule.min: nan cannot be compared with",
    ),
    "min of a word": (
        f'{RULE}fact = "cpu.cores"\nmin = "many"\n',
        ":5: rule.min: 'many' is neither a number",
    ),
    "another type": (
        f'{RULE}fact = "cpu.cores"\nequals = "8"\n',
        "cpu.cores is a whole number, never '8'",
    ),
    "one of another type": (
        f'{RULE}fact = "cpu.vendor"\none_of = ["Intel", 1]\n',
        "cpu.vendor is a text, never 1",
    ),
    "empty list": (f'{RULE}fact = "cpu.vendor"\none_of = []\n', "must be a list of texts"),
    "date for a value": (
        f'{RULE}fact = "cpu.vendor"\nequals = 2026-01-01\n',
        "not the time 2026-01-01",
    ),
    "bad pattern": (
        f'{RULE}fact = "cpu.vendor"\nmatches = "("\n',
        ":5: rule.matches: the pattern '(' cannot be read: missing ), unterminated",
    ),
    "bad count": (f'{RULE}fact = "cpu.features"\ncount = "several"\n', "'several' is not a count"),
    "count below zero": (
        f'{RULE}fact = "cpu.features"\ncount = -1\n',
        "must be a whole number, or a comparison",
    ),
    "quantified count": (
        f'{RULE}fact = "cpu.features"\ncount = 1\nquantifier = "any"\n',
        "count goes with no quantifier",
    ),
    "none present": (
        f'{RULE}fact = "cpu.features"\npresent = true\nquantifier = "none"\n',
        "write absent",
    ),
    "absent is false": (
        f'{RULE}fact = "cpu.features"\nabsent = false\n',
        ":5: rule.absent: must be true",
    ),
    "severity": (
        f'{RULE}check = "cpu present"\nseverity = "fatal"\n',
        ":5: rule.severity: 'fatal' is none of note, warning, error",
    ),
    "missing": (f'{RULE}check = "cpu present"\nmissing = "skp"\n', "did you mean 'skip'?"),
    "quantifier": (
        f'{RULE}fact = "cpu.cores"\nmin = 1\nquantifier = "all"\n',
        ":6: rule.quantifier: 'all' is none of each, any, none",
    ),
    "when": (
        f'{RULE}check = "cpu present"\nwhen = ["cpu present", "gpu present"]\n',
        ":5: rule.when: there is no probe named 'gpu'",
    ),
    "when of a file": ('schema = 1\nwhen = "gpu"\n', ":2: when: there is no probe named 'gpu'"),
    "needs": (
        f'{RULE}check = "cpu present"\nneeds = "b"\n',
        ":5: rule.needs: there is no rule named 'b'",
    ),
    "needs itself": (
        f'{RULE}check = "cpu present"\nneeds = "a"\n',
        ":5: rule.needs: a needs a: a circle",
    ),
    "needs in a circle": (
        f'{RULE}check = "cpu present"\nneeds = "b"\n[[rule]]\nid = "b"\ncheck = "cpu present"\nneeds = "a"\n',
        ": a circle",
    ),
    "waives nothing": (
        'schema = 1\n[[waive]]\nrule = "openmp-two-runtime"\nuntil = 2027-01-31\nreason = "x"\n',
        ":3: waive.rule: there is no rule named 'openmp-two-runtime'; did you mean 'openmp-two-runtimes'?",
    ),
    "waived for ever": (
        'schema = 1\n[[waive]]\nrule = "a"\nreason = "x"\n',
        ":2: waive: lacks until",
    ),
    "waived until a text": (
        'schema = 1\n[[waive]]\nrule = "a"\nuntil = "2027-01-31"\nreason = "x"\n',
        ":4: waive.until: must be a date",
    ),
    "waived until a time": (
        'schema = 1\n[[waive]]\nrule = "a"\nuntil = 2027-01-31T00:00:00\nreason = "x"\n',
        ":4: waive.until: must be a date",
    ),
    "waived twice": (
        f'{RULE}check = "cpu present"\n'
        + '[[waive]]\nrule = "a"\nuntil = 2027-01-31\nreason = "x"\n' * 2,
        ":10: waive.rule: 'a' is waived at",
    ),
    "waived without a reason": (
        f'{RULE}check = "cpu present"\n[[waive]]\nrule = "a"\nuntil = 2027-01-31\nreason = " "\n',
        "waive.reason: must not be empty",
    ),
    "hazards": ("schema = 1\nhazards = 1\n", ":2: hazards: must be true, false or a table"),
    "unknown hazard": (
        'schema = 1\n[hazards]\nonly = ["openmp-two-runtime"]\n',
        ":3: hazards.only: there is no hazard named 'openmp-two-runtime'; did you mean",
    ),
    "severity of a hazard": (
        'schema = 1\n[hazards.severity]\nopenmp-two-runtimes = "bad"\n',
        ":2: hazards.severity: must be a table of severities",
    ),
    "unknown hazard's severity": (
        'schema = 1\n[hazards.severity]\nx = "note"\n',
        ":3: hazards.severity.x: there is no hazard named 'x'",
    ),
    "bad TOML": ("schema = 1\nname = \n", "policy.toml:2: Invalid value"),
    "same key twice": ("schema = 1\nschema = 1\n", "policy.toml:2: Cannot overwrite"),
    "open text": ('schema = 1\nname = """\n', "policy.toml:"),
    "nested deeply": (
        "schema = 1\nname = " + "[" * 100 + "]" * 100,
        "policy.toml:2: nested more than",
    ),
    "a key of many parts": (
        "schema = 1\n" + ".".join("a" * 100) + " = 1",
        "policy.toml:2: nested more than",
    ),
    "thousands of digits": ("schema = " + "1" * 5000, "thousands of digits"),
    "added probe": ('schema = 1\nadded_probes = ["a b"]\n', ":2: added_probes: 'a b' is no name"),
    "snapshot that is not there": (
        f'{RULE}equals_snapshot = "x.json"\n',
        ":4: rule.equals_snapshot: ",
    ),
    "snapshot outside": (
        f'{RULE}equals_snapshot = "../x.json"\n',
        "must lie in the folder of the policy",
    ),
    "fact beside a snapshot": (
        f'{RULE}fact = "cpu"\nequals_snapshot = "x.json"\n',
        "rule.fact: does not go with",
    ),
    "a list with min": (
        f'{RULE}fact = "cpu.features"\nmin = 3\n',
        "rule.min: cpu.features is a list: use count to compare",
    ),
    "a list with a sign": (
        f'{RULE}check = "cpu.features > 3"\n',
        "rule.check: cpu.features is a list: use count to compare",
    ),
    "a table with a version": (
        f'{RULE}fact = "packages.distributions"\nversion = ">=3"\n',
        "rule.version: packages.distributions is a table: use count to compare",
    ),
    "a number with true": (f'{RULE}fact = "cpu.cores"\nequals = true\n', "is a whole number"),
    "the same in short": (f'{RULE}check = "cpu.cores == true"\n', "the value is a number"),
    "true with a number": (f'{RULE}fact = "cpu.avx2"\nequals = 1\n', "is true or false, never 1"),
    "the same in short too": (f'{RULE}check = "cpu.avx2 == 1"\n', "write == true or == false"),
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
    "a short one beyond all": (
        f'{RULE}check = "cpu.cores > 9e99999"\n',
        "'9e99999' is larger than any value",
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
    assert [each.title for each in rule.when] == ["cpu: present", "host.platform: linux"]
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
        ("../outside.toml", "must lie in the folder of the policy"),
        ("link.toml", "must lie in the folder of the policy"),
        ("gone.toml", "cannot be read: No such file"),
        ("policy.toml", "a circle"),
        ("back.toml", "back.toml:2: extends: 'policy.toml' leads back to this file: a circle"),
        ("pipe", "not a regular file"),
        (".", "must lie in the folder"),
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
        f'[[rule]]\nid = "r{i}"\ncheck = "cpu present"\n'
        + (f'needs = "r{i + 1}"\n' if i < 2999 else "")
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
        ("schema = 1\n".encode("utf-16"), "begins as UTF-16 does"),
        (b"schema = 1 # " + b"x" * (2 << 20), "is larger than 1 MiB"),
        (b"\0", "policy.toml:1"),
        (b"", "lacks schema"),
    ],
)
def test_bytes_that_are_no_policy(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "policy.toml").write_bytes(data)

    with pytest.raises(BadInput, match=said):
        read(str(tmp_path / "policy.toml"))


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_bytes(b"\xef\xbb\xbfschema = 1\n")

    assert read(str(tmp_path / "policy.toml")).rules == ()


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", "/nowhere", "a\0b", "/"])
def test_what_is_no_file_is_refused_at_once(path: str) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read(path)


def test_a_huge_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    with path.open("wb") as file:
        file.truncate(100 << 20)

    with pytest.raises(BadInput, match="is larger than 1 MiB"):
        read(str(path))
