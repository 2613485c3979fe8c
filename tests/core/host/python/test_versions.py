from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from mlbackends.base.specifiers import can_be_met, same_public_version, satisfies

PUBLIC = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(["", "", "1!"]),
        st.lists(st.sampled_from(["0", "1", "2", "10"]), min_size=1, max_size=3).map(".".join),
        st.sampled_from(["", "", "a1", "b", "rc2", ".pre0"]),
        st.sampled_from(["", "", ".post1", "-2", "r0"]),
        st.sampled_from(["", "", ".dev1", "dev"]),
    ),
)
LOCAL = st.sampled_from(["", "", "+cpu", "+cu130", "+1.2", "+a.1"])
VERSIONS = st.builds("{}{}".format, PUBLIC, LOCAL)


@given(VERSIONS, st.sampled_from(["==", "!=", "<=", ">=", "~=", "<", ">"]), PUBLIC)
def test_clauses_mean_what_packaging_says(version: str, sign: str, wanted: str) -> None:
    try:
        expected = SpecifierSet(sign + wanted).contains(Version(version), prereleases=True)
    except InvalidSpecifier:  # "~=2"
        assert satisfies(version, sign + wanted) is None
        return

    assert satisfies(version, sign + wanted) is expected


@pytest.mark.parametrize(
    ("version", "clauses", "fits"),
    [
        ("2.13.0+cpu", "==2.13.0", True),
        ("2.13.0+cpu", "==2.13", True),
        ("2.13.0", "==2.13.0+cpu", False),
        ("2.13.0+cu130", "==2.13.0+cpu", False),
        ("9.20.0.48", "==9.20.0.48", True),
        ("9.20.0.49", "==9.20.0.48", False),
        ("3.5.1", "==3.5.*", True),
        ("3.50", "==3.5.*", False),
        ("0.10.2", "<=0.10.2,>=0.10.2", True),
        ("0.10.1", "<=0.10.2,>=0.10.2", False),
        ("2.0rc1", "<2.0", False),
        ("2.0.post1", ">2.0", False),
        ("2.0+cpu", ">2.0", False),
        ("1.7.1", "~=1.7.0", True),
        ("1.8", "~=1.7.0", False),
        ("anything", "===anything", True),
        ("anything", "==1.0", None),
        ("1.0", "", None),
        ("1.0", "==1.0 or so", None),
        ("1.0", "==", None),
    ],
)
def test_a_clause_decides(version: str, clauses: str, fits: bool | None) -> None:
    assert satisfies(version, clauses) is fits


@pytest.mark.parametrize("text", ["", "one", "1.0.x", "\0\xff", "1" * 300, "1..2", "1.0+"])
def test_what_is_no_version_fits_no_clause(text: str) -> None:
    assert satisfies(text, ">=1.0") is None


def test_a_local_part_alone_makes_no_other_public_version() -> None:
    assert same_public_version("2.13.0", "2.13.0+cpu")
    assert same_public_version("2.13", "2.13.0")
    assert not same_public_version("2.13.0", "2.13.1")
    assert same_public_version("no version", "no version")


@pytest.mark.parametrize(
    ("clauses", "can_be"),
    [
        ("", True),
        ("==2.9.0,==2.9.1", False),
        ("==2.9.1,>=2.5,<3", True),
        (">2,<2.1,!=2.0.1", True),
        (">=2.1,<2", False),
        ("~=2.4,==2.8.*", True),
        ("<1", True),
        ("==2.9.0,==2.9.0+cu130", True),
    ],
)
def test_clauses_contradict_each_other_if_no_version_fits_all(clauses: str, can_be: bool) -> None:
    assert can_be_met(clauses) is can_be
