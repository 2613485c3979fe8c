"""The page for people: it fits, says each thing once, and obeys the terminal it is on."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from running import report

from mlbackends.base import registry
from mlbackends_cli.report import probes
from mlbackends_cli.terminal import Page

if TYPE_CHECKING:
    from mlbackends.model.records import Report

HOSTS = Path(__file__).parents[1] / "hosts"

NO_DRIVER = "it computes on a CUDA device only, and the driver's libcuda.so.1 is not found"


def lines(one: Report, **page: Any) -> list[str]:
    return str(registry.load("mlbackends_cli.formats", "table").report(one, Page(**page))).splitlines()


def row(page: list[str], name: str) -> str:
    """Return the one line that names a probe, before what is to be looked at."""
    page = page[: page.index("Problems")] if "Problems" in page else page
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


def test_what_is_broken_is_told_below_with_its_cure_for_each_that_is() -> None:
    broken = {
        "presence": "found",
        "reasons": [{"code": "x", "message": "too old", "hint": "renew it"}],
    }
    page = lines(report(cublas=broken, nccl=broken))

    assert page[page.index("Problems") + 1 :][:4] == [
        "  ✗  cublas  too old",
        "             → renew it",
        "  ✗  nccl    too old",
        "             → renew it",
    ]


def test_devices_that_are_alike_share_what_they_have_in_common() -> None:
    gpus = [
        {
            "kind": "cuda",
            "index": i,
            "name": "NVIDIA H200",
            "presence": "found",
            "driver": "570.1",
            "uuid": f"GPU-{i}",
        }
        for i in range(3)
    ]
    page = lines(report(nvidia={"presence": "found", "devices": gpus}), width=80, details=True)

    assert page[-6:] == [
        "  ·  3 × cuda  NVIDIA H200",
        "     driver  570.1",
        "     index  uuid",
        "     0      GPU-0",
        "     1      GPU-1",
        "     2      GPU-2",
    ]


def test_what_is_not_here_is_named_and_the_machine_never_is() -> None:
    one = report(mkl=library("absent"), nccl=library("absent"), limits=library("absent"))

    assert lines(one)[0] == "2 more were not found: backends info --absent"
    assert [line.split()[0] for line in lines(one, absent=True)] == ["Libraries", "mkl", "nccl"]


UNTOLD = {
    "presence": None,
    "reasons": [{"code": "only-the-framework-knows", "message": "only torch could tell"}],
}


def test_what_no_file_can_tell_of_is_not_said_to_be_missing() -> None:
    one = report(mtia=UNTOLD, nccl=library("absent"))
    page = lines(one)

    assert "1 more was not found: backends info --absent" in page
    assert page[page.index("Could not be determined") + 1].strip() == "?  mtia  only torch could tell"
    assert lines(one, details=True)[0].startswith("?  Meta MTIA  could not be determined")


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
    assert "and 2 more: backends info mkl nccl" in map(str.strip, page)


def test_what_a_device_and_its_probe_both_say_is_told_once() -> None:
    reasons = [{"code": "nouveau-bound", "message": "driven by nouveau"}]
    gpu = {"kind": "cuda", "index": 0, "presence": "found", "reasons": reasons}
    one = report(nvidia={"presence": "found", "devices": [gpu], "reasons": reasons})

    for details in (False, True):
        assert "\n".join(lines(one, details=details)).count("driven by nouveau") == 1


def test_records_are_a_table_where_they_fit_and_else_a_list() -> None:
    rows = [{"path": "/opt/" + "x" * 40, "headers_version": "13.0"}, {"path": "/usr"}]
    one = report(cuda_toolkit={"presence": "found", "facts": {"toolkits": rows}})

    wide, narrow = (lines(one, width=width, details=True) for width in (100, 60))
    assert any(re.fullmatch(r"  path +headers_version", line) for line in wide)
    assert narrow[3:5] == [f"  •  path  /opt/{'x' * 40}", "     headers_version  13.0"]
    assert lines(one, width=60, details=True, unicode=False)[-1] == "  -  path  /usr"


def test_pairs_of_gpus_are_a_matrix() -> None:
    pairs: list[dict[str, Any]] = [
        {"gpus": [number, other], "path": "host-bridge", "nvlinks": 18}
        for number in range(8)
        for other in range(number + 1, 8)
    ]
    pairs[6] = {"gpus": [0, 7], "path": "system"}
    one = report(nvidia={"presence": "found", "facts": {"topology": pairs}})

    page = lines(one, width=80, details=True)
    (head,) = [number for number, line in enumerate(page) if "GPU7" in line]
    rows = [line.split() for line in page[head + 1 : head + 9]]
    assert page[head].split() == ["gpu", *(f"GPU{number}" for number in range(8))]
    assert [row[0] for row in rows] == list("01234567")
    assert rows[0][1:] == ["X", *["NV18"] * 6, "SYS"]
    assert rows[7][1:] == ["SYS", *["NV18"] * 6, "X"]


@pytest.mark.parametrize("pair", [[0], [0, True], "01", [0, "1"], None])
def test_what_is_no_pair_of_gpus_stays_as_it_is(pair: object) -> None:
    rows = [{"gpus": [0, 1], "path": "system"}, {"gpus": pair, "path": "system"}]
    one = report(nvidia={"presence": "found", "facts": {"topology": rows}})
    assert any("system" in line for line in lines(one, width=80, details=True))


@pytest.mark.parametrize(("width", "below"), [(200, 0), (120, 1), (80, 2)])
def test_columns_that_do_not_fit_stand_below_their_rows(width: int, below: int) -> None:
    used = {
        "version": "2.13.0",
        "blas": {
            "library": "mkl", "version": "2024.2", "threads": 64, "runtime": "openmp",
            "path": "/home/me/venv/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so",
            "threads_source": "it takes what MKL takes: the cores in the affinity mask",
        },
    }  # fmt: skip
    one = report(uses={"presence": "found", "facts": {"torch": used}})
    page = lines(one, width=width, details=True)
    (at,) = [number for number, line in enumerate(page) if "torch 2.13.0" in line]

    assert page[at].split()[:5] == ["torch", "2.13.0", "mkl", "2024.2", "64"]
    assert len([line for line in page[at + 1 :] if line.startswith("      ")]) == below
    assert all(len(line) <= width for line in page)


def test_a_fact_of_many_settings_is_counted_and_says_how_to_see_them() -> None:
    settings = {f"USE_{number}": "ON" * 40 for number in range(27)}
    one = report(torch={"presence": "found", "facts": {"build_settings": settings}})

    (line,) = [line for line in lines(one, details=True) if "build_settings" in line]
    assert line.split(maxsplit=1)[1] == "27 of them: backends info --get torch.build_settings"


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

    assert max(map(len, lines(one, width=width, details=details, terminal=True))) <= width
    # What is not read on a terminal has paths in one piece.
    assert any("/very/long" * 40 in line for line in lines(one, width=width, details=details))


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


def test_what_each_package_takes_is_told_with_it_and_in_full_where_it_is_named() -> None:
    blas = {
        "library": "openblas",
        "version": "0.3.30",
        "core": "Zen",
        "threads": 4,
        "path": "/a/b.so",
    }
    openmp = {"library": "openmp", "threads": 2, "runtime": "gnu", "threads_source": "a rule"}
    facts = {"scikit_learn": {"version": "1.9.1", "blas": blas, "openmp": openmp}}
    one = report(uses={"presence": "found", "facts": facts})

    assert lines(one, width=60)[:4] == [
        "Packages",
        "  scikit-learn  1.9.1",
        "                BLAS openblas 0.3.30 · Zen · 4 threads",
        "                OpenMP gnu · 2 threads",
    ]
    (details,) = (line for line in lines(one, width=120, details=True) if "openmp" in line)
    assert details.split()[-2:] == ["a", "rule"]


def recorded() -> dict[str, Report]:
    """Return the report of each recorded machine, of what is there, and one thing that is not."""
    return {
        file.name.partition(".")[0]: report(
            **msgspec.json.decode(file.read_bytes())["probes"], xnnpack=library("absent")
        )
        for file in HOSTS.glob("*.expected.json")
    }


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_the_page_of_a_recorded_machine_fits_and_breaks_no_word(width: int) -> None:
    for name, machine in recorded().items():
        page = lines(machine, width=width, terminal=True)
        assert max(map(len, page)) <= width, name
        assert "not found: backends info --absent" in " ".join(page), name
        text = "\n".join(page)
        words = {"", *re.split(r"[\s/]+", text)}
        found = [f"{reason.message} {reason.hint}" for _, reason in probes.broken(machine)]
        found += [
            text for texts in probes.used_libraries(machine.probes.get("uses")).values() for text in texts
        ]
        for word in re.split(r"[\s/]+", " ".join(found)):
            assert word in words or len(word) > width - 4, (name, word)


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("hgx-h100-eight-gpus", 120),
        ("mig-pod", 80),
        ("cluster-modules-node", 80),
        ("macbook-m3", 60),
    ],
)
def test_the_page_of_a_recorded_machine_is_as_it_was_read(name: str, width: int) -> None:
    """Read the difference first; with WRITE_PAGES=1 the files are written anew."""
    page = "\n".join(lines(recorded()[name], width=width, terminal=True)) + "\n"
    file = Path(__file__).parent / "pages" / f"{name}-{width}.txt"
    if os.environ.get("WRITE_PAGES"):
        file.write_text(page, encoding="utf-8")

    assert page == file.read_text(encoding="utf-8")


def test_a_wide_terminal_has_two_columns_and_a_pipe_has_one() -> None:
    one = recorded()["hgx-h100-eight-gpus"]
    piped, seen = (lines(one, width=120, terminal=on) for on in (False, True))

    assert piped[0] == "Machine" and seen[0].split() == ["Machine", "Libraries"]
    assert len(seen) < len(piped)
    assert {word for line in seen for word in line.split()} >= {"cusparselt", "64", "threads"}
    assert max(map(len, seen)) <= 120
