from __future__ import annotations

import pytest

from mlbackends.host.host import Host
from mlbackends.libraries.cuda.visible_devices import environment, visibility_warnings, visible


@pytest.mark.parametrize(
    ("value", "entries"),
    [
        ("0", ("0",)),
        ("3,1,2", ("3", "1", "2")),
        (" 0 , 1", ("0", "1")),
        ("1gpu2,2ampere", ("1", "2")),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",)),
        ("MIG-GPU-8932f937/1/2", ("MIG-GPU-8932f937/1/2",)),
        ("", ()),
        ("  ", ()),
        ("-1", ()),
        ("0,-1,1", ("0",)),
        ("all", ()),
        ("0,,1", ("0",)),
        ("0,0", ()),
        ("1,01", ()),
        ("\udcff", ()),
    ],
)
def test_the_entries_that_cuda_takes(value: str, entries: tuple[str, ...]) -> None:
    assert visible(value)[0] == entries
    assert (not visible(value)[0]) is not bool(entries)


@pytest.mark.parametrize(
    ("variables", "count", "codes"),
    [
        ({}, 8, []),
        ({"CUDA_VISIBLE_DEVICES": "0,7"}, 8, []),
        ({"CUDA_VISIBLE_DEVICES": "0,8"}, 8, ["override-invalid"]),
        ({"CUDA_VISIBLE_DEVICES": "0,8"}, 0, []),
        ({"CUDA_VISIBLE_DEVICES": ""}, 8, ["hidden-by-variable"]),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, 8, ["hidden-by-variable"]),
        ({"CUDA_VISIBLE_DEVICES": "1,1"}, 8, ["hidden-by-variable", "override-invalid"]),
        ({"CUDA_VISIBLE_DEVICES": "0,x"}, 8, ["override-invalid"]),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, 8, []),
        ({"CUDA_DEVICE_ORDER": "pci"}, 8, ["override-invalid"]),
    ],
)
def test_what_is_wrong_with_the_variables(variables: dict[str, str], count: int, codes: list[str]) -> None:
    host = Host(environment=variables)

    assert [warning.code for warning in visibility_warnings(host, count)] == codes


@pytest.mark.parametrize(
    ("value", "codes"),
    [
        ("GPU-1f3a", []),
        ("GPU-1f3a0000-0000-0000-0000-000000000000", []),
        ("GPU-9999", ["override-invalid"]),
        ("0,GPU-9999", ["override-invalid"]),
        ("MIG-9999", []),
    ],
)
def test_a_uuid_that_no_gpu_has_is_wrong(value: str, codes: list[str]) -> None:
    host = Host(environment={"CUDA_VISIBLE_DEVICES": value})
    uuids = ("GPU-1f3a0000-0000-0000-0000-000000000000",)

    assert [warning.code for warning in visibility_warnings(host, 1, uuids)] == codes
    assert visibility_warnings(host, 1) == ()


def test_an_empty_variable_is_set() -> None:
    host = Host(environment={"CUDA_VISIBLE_DEVICES": "", "PATH": "/bin"})

    assert environment(host) == {"CUDA_VISIBLE_DEVICES": ""}
