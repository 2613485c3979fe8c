from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from mlbackends.host.host import Host
from mlbackends.host.python.packages import distributions
from mlbackends.host.python.wheel_files import SharedFiles, shared_files

if TYPE_CHECKING:
    from pathlib import Path


def shared(folder: Path, records: dict[str, str | bytes], *on_disk: tuple[str, int]) -> list[SharedFiles]:
    """Compose a site-packages of some RECORDs, and compare them.

    records: "NAME-VERSION", or "FOLDER/NAME-VERSION" for another folder, to the RECORD's text.
    on_disk: files with their sizes.
    """
    folders = []
    for name, record in records.items():
        at, _, dist = name.rpartition("/")
        info = folder / "root" / (at or "site") / f"{dist}.dist-info"
        info.mkdir(parents=True)
        folders.append(f"/{at or 'site'}")
        data = record if isinstance(record, bytes) else record.encode()
        (info / "RECORD").write_bytes(data)
    for path, size in on_disk:
        (folder / "root" / "site" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "root" / "site" / path).write_bytes(b"x" * size)
    told = {"python": {"path": sorted(set(folders))}}
    (folder / "host.json").write_text(json.dumps(told))
    host = Host(str(folder))
    return shared_files(host, [dist for all_of in distributions(host).values() for dist in all_of])


def test_a_file_that_two_wrote_is_the_one_that_its_size_tells(tmp_path: Path) -> None:
    records: dict[str, str | bytes] = {
        "cuda_bindings-13.5.0": (
            "cuda/bindings/__init__.py,sha256=aaa,120\n"
            "cuda/bindings/driver.py,sha256=bbb,40\n"
            "cuda/bindings/same.py,sha256=ccc,7\n"
            "cuda/bindings/only_here.py,sha256=ddd,8\n"
        ),
        "cuda_python-12.6.2.post1": (
            "cuda/bindings/__init__.py,sha256=eee,200\n"
            "cuda/bindings/driver.py,sha256=fff,44\n"
            "cuda/bindings/same.py,sha256=ccc,7\n"
            "cuda_python-12.6.2.post1.dist-info/RECORD,,\n"
        ),
        "unrelated-1.0": "unrelated/__init__.py,sha256=aaa,120\n",
    }

    (pair,) = shared(tmp_path, records, ("cuda/bindings/__init__.py", 200))

    assert (pair.first.name, pair.second.name) == ("cuda-bindings", "cuda-python")
    assert (pair.shared, pair.differing) == (3, 2)
    assert pair.example == "cuda/bindings/__init__.py"
    assert pair.on_disk == "cuda-python"


def test_equal_contents_are_no_clash(tmp_path: Path) -> None:
    line = "nvidia/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"
    records: dict[str, str | bytes] = {
        "nvidia_cublas_cu12-12.9.1.4": line + "nvidia/cublas/lib/libcublas.so.12,sha256=a,1\n",
        "nvidia_cudnn_cu12-9.10.2.21": line + "nvidia/cudnn/lib/libcudnn.so.9,sha256=b,1\n",
    }

    assert shared(tmp_path, records) == []


def test_files_without_a_hash_may_differ(tmp_path: Path) -> None:
    (pair,) = shared(tmp_path, {"one-1": "module.py,,\n", "two-1": "module.py,,\n"})

    assert (pair.example, pair.on_disk) == ("module.py", "")


def test_names_that_begin_alike_are_not_the_same_folder(tmp_path: Path) -> None:
    records: dict[str, str | bytes] = {
        "one-1": "torch/a.py,sha256=1,1\ntorchgen/b.py,sha256=2,2\n",
        "two-1": "torchgen_more/b.py,sha256=3,3\ntorchgen,sha256=4,4\n",
    }

    assert shared(tmp_path, records) == []


def test_a_record_out_of_order_is_read_to_its_end(tmp_path: Path) -> None:
    records: dict[str, str | bytes] = {
        "one-1": "a/x.py,sha256=1,1\nb/x.py,sha256=2,2\na/y.py,sha256=3,3\nz/y.py,sha256=5,5\n",
        "two-1": "c/x.py,sha256=1,1\nz/y.py,sha256=4,4\nc/z.py,sha256=1,1\n",
    }

    (pair,) = shared(tmp_path, records)

    assert (pair.example, pair.shared) == ("z/y.py", 1)


@pytest.mark.parametrize(
    "path", ["../../bin/tool", "a/__pycache__/b.pyc", "/etc/tool.conf", "one-1.dist-info/RECORD"]
)
def test_what_is_outside_or_made_by_python_is_not_counted(tmp_path: Path, path: str) -> None:
    records: dict[str, str | bytes] = {
        "one-1": f"{path},sha256=1,1\na/same.py,sha256=1,1\n",
        "two-1": f"{path},sha256=2,2\na/same.py,sha256=1,1\n",
    }

    assert shared(tmp_path, records) == []


def test_two_versions_of_one_name_are_another_trouble(tmp_path: Path) -> None:
    records: dict[str, str | bytes] = {
        "one-1": "one/a.py,sha256=1,1\n",
        "one-2": "one/a.py,sha256=2,2\n",
    }

    assert shared(tmp_path, records) == []


def test_another_folder_is_another_file(tmp_path: Path) -> None:
    records: dict[str, str | bytes] = {
        "user/one-1": "a/b.py,sha256=1,1\n",
        "site/two-1": "a/b.py,sha256=2,2\n",
    }

    assert shared(tmp_path, records) == []


def test_a_quoted_path_is_read_without_its_quotes(tmp_path: Path) -> None:
    records: dict[str, str | bytes] = {
        "one-1": '"a/b,c.py",sha256=1,1\n',
        "two-1": '"a/b,c.py",sha256=2,2\n',
    }

    (pair,) = shared(tmp_path, records)

    assert pair.example == "a/b,c.py"


@pytest.mark.parametrize(
    "data", [b"", b"\0\xff\xfe", b",,,\n" * 1000, b"a/b", b'"a/b', b"a/b,sha256=1,9" + b"9" * 5000]
)
def test_a_broken_record_owns_nothing_that_clashes(tmp_path: Path, data: bytes) -> None:
    records: dict[str, str | bytes] = {"one-1": data, "two-1": "c/d.py,sha256=2,2\n"}

    assert shared(tmp_path, records) == []
