"""The page for people: it fits, says each thing once, and obeys the terminal it is on."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from mlbackends.model import registry
from mlbackends.model.records import Report
from mlbackends_cli.terminal import Page

NO_DRIVER = "it computes on a CUDA device only, and the driver's libcuda.so.1 is not found"


def report(**probes: Any) -> Report:
    return msgspec.convert(
        {
            "schema": "backends.report/1",
            "tool": "backends 1.2.3",
            "depth": "usable",
            "root": "/",
            "created": "2026-01-02T03:04:05Z",
            "duration_seconds": 0.25,
            "redacted": True,
            "probes": probes,
        },
        Report,
    )


def lines(one: Report, **page: Any) -> list[str]:
    return str(
        registry.load("mlbackends_cli.formats", "table").report(one, Page(**page))
    ).splitlines()


def row(page: list[str], name: str) -> str:
    """Return the one line that names a probe."""
    found = [line for line in page if re.search(rf"\b{name}\b", line)]
    assert len(found) == 1
    return found[0].strip()


def library(presence: str, reason: tuple[str, str] | None = None, **more: Any) -> dict[str, Any]:
    reasons = [{"code": reason[0], "message": reason[1]}] if reason else []
    return {"presence": presence, "version": "1.0", "reasons": reasons, **more}


def test_each_rung_has_its_mark() -> None:
    page = lines(
        report(
            cublas=library("usable"),
            cudnn=library("loadable", ("no-device", "no device")),
            mkl=library("found"),
            nccl=library("found", ("dlopen-failed", "does not open")),
            openmp={"presence": None, "failure": {"message": "KeyError"}},
        )
    )

    assert [row(page, n)[0] for n in ("cublas", "cudnn", "mkl", "nccl", "openmp")] == list("✓◐·✗?")


def test_a_reason_that_many_libraries_share_is_told_once_with_their_versions() -> None:
    names = ("cublas", "cufft", "curand", "cusolver", "cusparse", "nccl")
    page = lines(report(**{name: library("loadable", ("no-driver", NO_DRIVER)) for name in names}))
    text = " ".join(" ".join(page).split())

    assert text.count(NO_DRIVER) == 1
    assert "the same: cufft 1.0, curand 1.0, cusolver 1.0, cusparse 1.0, nccl 1.0" in text


def test_libraries_on_two_rungs_share_no_line() -> None:
    one = report(
        cublas=library("loadable", ("no-driver", NO_DRIVER)),
        nccl=library("found", ("no-driver", NO_DRIVER)),
    )

    assert row(lines(one), "nccl").startswith("·")


def test_a_short_reason_is_told_again() -> None:
    page = lines(
        report(cublas=library("found", ("x", "too old")), nccl=library("found", ("x", "too old")))
    )

    assert "too old" in row(page, "cublas") and "too old" in row(page, "nccl")


def test_devices_that_are_alike_are_counted() -> None:
    gpus = [
        {
            "kind": "cuda",
            "index": i,
            "name": "NVIDIA H200",
            "presence": "loadable",
            "memory_bytes": 141 << 30,
            "reasons": [{"code": "no-use-check", "message": "cuda_driver tells"}],
        }
        for i in range(8)
    ]
    page = lines(report(nvidia={"presence": "loadable", "devices": gpus}))

    assert row(page, "nvidia") == "◐  nvidia  8 × NVIDIA H200 · 141 GiB"


def test_an_accelerator_that_is_not_usable_says_why() -> None:
    gpu = {"kind": "xpu", "index": 0, "name": "Arc", "presence": "found"}
    reasons = [{"code": "permission-denied", "message": "may not be opened"}]
    page = lines(report(xpu={"presence": "found", "devices": [gpu], "reasons": reasons}))

    assert "may not be opened" in " ".join(page)


def test_what_is_not_here_is_named_and_the_machine_never_is() -> None:
    page = lines(report(mkl=library("absent"), nccl=library("absent"), limits=library("absent")))

    assert page[page.index("Not here") + 1].strip() == "mkl, nccl"


UNTOLD = {
    "presence": None,
    "reasons": [{"code": "only-the-framework-knows", "message": "only torch could tell"}],
}


def test_what_no_file_can_tell_of_is_not_said_to_be_missing() -> None:
    one = report(mtia=UNTOLD, nccl=library("absent"))
    page = lines(one)

    assert page[page.index("Not here") + 1].strip() == "nccl"
    assert page[page.index("Could not tell") + 1].strip() == "mtia  only torch could tell"
    assert "?" not in page[0]
    assert lines(one, details=True)[0].startswith("? Meta MTIA  could not tell")


def test_one_warning_of_two_probes_is_told_once() -> None:
    said = [{"code": "conflict", "message": "two of them"}]
    page = lines(report(mkl=library("found", warnings=said), nccl=library("found", warnings=said)))

    assert sum("two of them" in line for line in page) == 1


def test_ten_warnings_are_told_and_where_the_others_are() -> None:
    many = [{"code": "conflict", "message": f"thing {i}"} for i in range(11)]
    page = lines(
        report(
            mkl=library("found", warnings=many),
            nccl=library("found", warnings=[{"code": "conflict", "message": "other"}]),
        )
    )

    assert [line for line in page if "thing 9" in line] and not any("thing 10" in x for x in page)
    assert "  and 2 more: backends info mkl nccl" in page


def test_what_a_device_and_its_probe_both_say_is_told_once() -> None:
    reasons = [{"code": "nouveau-bound", "message": "driven by nouveau"}]
    gpu = {"kind": "cuda", "index": 0, "presence": "found", "reasons": reasons}
    one = report(nvidia={"presence": "found", "devices": [gpu], "reasons": reasons})

    for details in (False, True):
        assert "\n".join(lines(one, details=details)).count("driven by nouveau") == 1


def test_text_that_a_narrow_page_would_slice_begins_on_its_own_line() -> None:
    one = report(cuda_runtime=library("found", ("x", "it cannot be opened by this process")))
    page = lines(one, width=40)

    assert "  it cannot be opened by this process" in "\n".join(page)
    assert "  ✗  cuda_runtime  1.0" in page


def test_records_are_a_table_where_they_fit_and_else_a_list() -> None:
    rows = [{"path": "/opt/" + "x" * 40, "headers_version": "13.0"}, {"path": "/usr"}]
    one = report(cuda_toolkit={"presence": "found", "facts": {"toolkits": rows}})

    wide, narrow = (lines(one, width=width, details=True) for width in (100, 60))
    assert any(re.fullmatch(r"  path +headers_version", line) for line in wide)
    assert "  •  path             /opt/" in "\n".join(narrow)
    assert "     headers_version  13.0" in narrow
    assert lines(one, width=60, details=True, unicode=False)[-1] == "  -  path  /usr"


def test_details_call_the_rung_as_the_report_does() -> None:
    copy = {"name": "x", "path": "/x.so", "presence": "usable"}
    page = lines(report(cudnn={"presence": "usable", "libraries": [copy]}), details=True)

    assert "      presence  usable" in page and not any("rung" in line for line in page)


def test_without_colour_there_is_none() -> None:
    one = report(cublas=library("usable"))

    assert "\x1b" not in "\n".join(lines(one))
    assert "\x1b[32m✓" in "\n".join(lines(one, color=True))


def test_a_plain_terminal_gets_plain_marks() -> None:
    one = report(
        cublas=library("usable"), cudnn=library("loadable"), nccl=library("found", ("x", "y"))
    )

    assert "\n".join(lines(one, unicode=False)).isascii()


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("details", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, details: bool) -> None:
    one = report(
        cpu={"presence": "found", "facts": {"model_name": "x" * 300, "features": ["avx"] * 90}},
        cudnn=library(
            "found",
            ("dlopen-failed", "word " * 80),
            libraries=[{"name": "cudnn", "path": "/very/long" * 40}],
        ),
    )

    assert max(map(len, lines(one, width=width, details=details))) <= width


@pytest.mark.parametrize("color", [False, True])
@pytest.mark.parametrize("details", [False, True])
def test_nothing_that_a_terminal_obeys_gets_through(color: bool, details: bool) -> None:
    hostile = "a\x1b]0;title\x07b\x1b[2Jc\x9b1md\u202ee\x1b[8m [red]f[/red]\n::error::g"
    one = report(
        cpu={"presence": "found", "facts": {"model_name": hostile, "rows": [{hostile: hostile}]}},
        cudnn=library(
            "found",
            (hostile, hostile),
            libraries=[{"name": "x", "path": hostile, "owner": hostile}],
        ),
    )
    text = "\n".join(lines(one, color=color, details=details, width=200))

    assert not set(re.sub(r"\x1b\[[0-9;]*m", "", text)) & {"\x1b", "\x07", "\x9b", "\u202e"}
    assert "\x1b[8m" not in text
    assert "[red]f[/red]" in text
    assert not re.search("^\\s*::", text, re.MULTILINE)


def test_details_have_every_fact_and_copy_with_hints() -> None:
    reason = {"code": "dlopen-failed", "message": "it does not open", "hint": "install it"}
    copy = {"name": "cudnn", "path": "/x/libcudnn.so", "wins": True, "wins_because": "first found"}
    one = report(
        cudnn={
            "presence": "found",
            "facts": {"count": 3, "rows": [{"size_bytes": 2048}]},
            "libraries": [{**copy, "reasons": [reason]}],
        }
    )
    text = "\n".join(lines(one, details=True))

    assert "/x/libcudnn.so" in text and "first found" in text
    assert "it does not open [dlopen-failed]" in text and "→ install it" in text
    assert "2 KiB" in text and "count  3" in text


def test_a_long_path_begins_beside_its_mark() -> None:
    copy = {"name": "x", "path": "/opt/" + "x" * 200, "presence": "usable"}
    page = lines(report(cudnn={"presence": "usable", "libraries": [copy]}), details=True)

    assert "  ✓ /opt/xxx" in "\n".join(page)


def test_what_each_package_takes_is_a_table_that_drops_columns_on_a_narrow_page() -> None:
    blas = {
        "library": "openblas",
        "version": "0.3.30",
        "core": "Zen",
        "threads": 4,
        "path": "/a/b.so",
    }
    openmp = {"library": "openmp", "threads": 2, "runtime": "gnu", "threads_because": "a rule"}
    facts = {"scikit_learn": {"version": "1.9.1", "blas": blas, "openmp": openmp}}
    one = report(uses={"presence": "found", "facts": facts})

    wide, narrow = (lines(one, width=width) for width in (120, 60))

    assert wide[0] == narrow[0] == "Uses"
    assert wide[1].split() == ["package", "takes", "core", "threads", "runtime", "path"]
    assert row(wide, "Zen").split()[2:] == ["openblas", "0.3.30", "Zen", "4", "/a/b.so"]
    assert "path" not in narrow[1] and "1.9.1" in narrow[2]
    (details,) = (line for line in lines(one, width=120, details=True) if "openmp" in line)
    assert details.split()[-2:] == ["a", "rule"]


def test_a_fact_that_would_be_misread_has_a_label() -> None:
    one = report(numpy={"presence": "found", "facts": {"blas_configuration": "OpenBLAS Haswell"}})

    page = lines(one, width=100, details=True)

    assert any("blas_configuration of the build" in line for line in page)
