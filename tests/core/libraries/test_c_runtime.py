"""Which libstdc++ a process gets, on composed machines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec

from mlbackends.host.host import Host
from mlbackends.libraries.c_runtime import cxx_library
from mlbackends.libraries.elf import Elf

if TYPE_CHECKING:
    from pathlib import Path

SYSTEM, OLD = "/usr/lib/x86_64-linux-gnu", "/opt/gcc/lib64"


def machine(folder: Path, search_path: str = "", **versions: list[str]) -> Host:
    extracts = {}
    for name, folder_of in (("system", SYSTEM), ("old", OLD)):
        path = folder / "root" / folder_of.lstrip("/") / "libstdc++.so.6"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        elf = Elf("x86_64", "libstdc++.so.6", (), (), ())
        extracts[f"{folder_of}/libstdc++.so.6"] = {
            "read_elf": msgspec.to_builtins(elf),
            "version_definitions": versions.get(name, []),
        }
    (folder / "extracts.json").write_text(json.dumps(extracts))
    told = {"uname": {"machine": "x86_64"}, "environment": {"LD_LIBRARY_PATH": search_path}}
    (folder / "host.json").write_text(json.dumps(told))
    return Host(str(folder))


def test_the_highest_version_of_its_symbols_is_told(tmp_path: Path) -> None:
    versions = ["GLIBCXX_3.4", "GLIBCXX_3.4.9", "GLIBCXX_3.4.30", "CXXABI_1.3.15", "GLIBCXX_LDBL"]

    found = cxx_library(machine(tmp_path, system=versions))

    assert found == (f"{SYSTEM}/libstdc++.so.6", "3.4.30")


def test_the_search_path_comes_before_the_system(tmp_path: Path) -> None:
    host = machine(tmp_path, OLD, system=["GLIBCXX_3.4.30"], old=["GLIBCXX_3.4.20"])

    assert cxx_library(host) == (f"{OLD}/libstdc++.so.6", "3.4.20")


def test_a_copy_without_versions_is_told_without_one(tmp_path: Path) -> None:
    assert cxx_library(machine(tmp_path)) == (f"{SYSTEM}/libstdc++.so.6", "")


def test_a_machine_without_one_has_none(tmp_path: Path) -> None:
    (tmp_path / "host.json").write_text("{}")

    assert cxx_library(Host(str(tmp_path))) == ("", "")
