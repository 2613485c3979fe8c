"""Lowered modules in files: loading compiles anew, and what is not ours is refused."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import pickle
import stat
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlbackends import jit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_numbers = itertools.count()


class Scale:
    def forward(self, x: int, factor: int = 3) -> tuple[int, str]:
        return x * factor, "scaled"


class Chip(jit.BackendInterface):
    up = True
    asked: list[str]

    def __init__(self) -> None:
        self.asked.append("constructor")

    def is_available(self) -> bool:
        self.asked.append("is_available")
        return self.up

    def compile(self, processed: Any, method_compile_spec: Any) -> dict[str, Any]:
        self.asked.append("compile")
        return dict.fromkeys(method_compile_spec, processed["code"])

    def execute(self, handle: Any, inputs: list[Any]) -> list[Any]:
        return [inputs[0] * inputs[1], handle]


def lowered_to(chip: type[Chip], processed: Any = None) -> tuple[str, jit.LoweredWrapper]:
    name = f"saved_{next(_numbers)}"
    jit.register_backend(name, chip)
    jit.register_preprocess(name, lambda *_: processed or {"code": "scaled"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return name, jit.to_backend(name, Scale(), {"forward": {"fast": True}})


def chip(**overrides: Any) -> type[Chip]:
    return type("AChip", (Chip,), {"asked": [], **overrides})


def test_a_loaded_module_is_compiled_and_runs(tmp_path: Path) -> None:
    kind = chip()
    _, lowered = lowered_to(kind)
    lowered.save(tmp_path / "m")
    kind.asked.clear()

    loaded = jit.load(tmp_path / "m")

    assert kind.asked == ["constructor", "is_available", "compile"]
    assert loaded(2) == (6, "scaled") and loaded.forward(2, factor=2) == (4, "scaled")
    assert loaded.original_name == "Scale" and loaded.qualified_name == lowered.qualified_name
    with pytest.raises(TypeError, match="missing"):
        loaded()


def test_an_unavailable_module_is_saved_and_loaded_where_it_is_available(tmp_path: Path) -> None:
    kind = chip(up=False)
    _, lowered = lowered_to(kind)
    jit.save(lowered, str(tmp_path / "m"))

    with pytest.raises(RuntimeError, match=r"^Backend is not available\.$"):
        jit.load(str(tmp_path / "m"))
    kind.up = True
    assert jit.load(str(tmp_path / "m"))(2) == (6, "scaled")


def test_a_binary_file_will_do() -> None:
    _, lowered = lowered_to(chip())
    file = io.BytesIO()

    lowered.save(file)
    file.seek(0)

    assert jit.load(file)(1) == (3, "scaled")


def test_another_process_needs_the_backend_and_not_the_module_s_class(tmp_path: Path) -> None:
    name, lowered = lowered_to(chip())
    lowered.save(tmp_path / "m")
    program = f"""
from mlbackends import jit
class Chip(jit.BackendInterface):
    def is_available(self): return True
    def compile(self, processed, spec): return dict.fromkeys(spec, processed["code"])
    def execute(self, handle, inputs): return [sum(inputs), handle]
jit.register_backend({name!r}, Chip)
print(jit.load({str(tmp_path / "m")!r})(4))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "(7, 'scaled')"


def test_an_unknown_backend_is_refused_before_anything_is_unpickled(tmp_path: Path) -> None:
    name, lowered = lowered_to(chip())
    lowered.save(tmp_path / "m")
    program = f"from mlbackends import jit; jit.load({str(tmp_path / 'm')!r})"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert f"Backend {name} is not registered." in done.stderr


def iter_nothing() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage" * 900,
        b"PK\x03\x04",
        pickle.dumps({"a": 1}),
        b"\n",
        b"mlbackends-loweredX 1\n",
    ],
)
def test_a_file_of_another_kind_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(content)

    for kind in (RuntimeError, ValueError):
        with pytest.raises(kind, match="is not a lowered module"):
            jit.load(tmp_path / "m")


def test_a_file_of_another_version_says_which(tmp_path: Path) -> None:
    _, lowered = lowered_to(chip())
    lowered.save(tmp_path / "m")
    content = (tmp_path / "m").read_bytes().replace(b"lowered 3 ", b"lowered 27 ", 1)
    (tmp_path / "m").write_bytes(content)

    with pytest.raises(
        RuntimeError, match="is of version '27' or truncated; this mlbackends reads version 3"
    ):
        jit.load(tmp_path / "m")


def framed(backend: str, body: bytes) -> io.BytesIO:
    """Return a file that we could have written, with any pickle in it."""
    digest = hashlib.sha256(body).hexdigest()
    return io.BytesIO(f"mlbackends-lowered 3 {backend} {digest}\n".encode() + body)


@pytest.mark.parametrize("other", [[1, 2], {}, {"backend_name": "another"}, {"processed": 1}])
def test_a_pickle_of_something_else_in_our_frame_is_refused(other: Any) -> None:
    name, _ = lowered_to(chip())
    with pytest.raises(RuntimeError, match="holds no lowered module of backend"):
        jit.load(framed(name, pickle.dumps(other)))


def test_a_class_that_is_not_here_is_named() -> None:
    name, _ = lowered_to(chip())
    with pytest.raises(
        RuntimeError, match="cannot be unpickled here: No module named 'nosuchmodule'"
    ):
        jit.load(framed(name, b"\x80\x05cnosuchmodule\nNothing\n."))


def test_a_byte_that_changed_or_is_missing_is_damage(tmp_path: Path) -> None:
    _, lowered = lowered_to(chip())
    lowered.save(tmp_path / "m")
    content = (tmp_path / "m").read_bytes()
    begin = content.index(b"\n") + 1

    for at in range(begin, len(content)):
        changed = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        for damaged in (changed, content[:at]):
            with pytest.raises(jit.NotLoadable, match="is truncated or damaged"):
                jit.load(io.BytesIO(damaged))


_KEPT: list[bytes] = []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_truncated_file_is_refused_wherever_it_ends(data: st.DataObject) -> None:
    if not _KEPT:
        file = io.BytesIO()
        lowered_to(chip())[1].save(file)
        _KEPT.append(file.getvalue())
    length = data.draw(st.integers(0, len(_KEPT[0]) - 1))

    with pytest.raises(jit.NotLoadable):
        jit.load(io.BytesIO(_KEPT[0][:length]))


def test_what_cannot_be_pickled_is_not_saved_and_the_old_file_stays(tmp_path: Path) -> None:
    kind = chip(compile=lambda *_: {"forward": 1})
    _, lowered = lowered_to(kind, {"open": iter_nothing()})
    (tmp_path / "m").write_bytes(b"old")

    with pytest.raises(RuntimeError, match=r"cannot be pickled: .*generator"):
        lowered.save(tmp_path / "m")
    assert os.listdir(tmp_path) == ["m"] and (tmp_path / "m").read_bytes() == b"old"


def test_a_place_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    _, lowered = lowered_to(chip())
    (tmp_path / "folder").mkdir()

    with pytest.raises(OSError, match="folder"):
        lowered.save(tmp_path / "folder")
    with pytest.raises(FileNotFoundError):
        lowered.save(tmp_path / "nowhere" / "m")
    with pytest.raises(FileNotFoundError):
        jit.load(tmp_path / "nowhere")
    assert os.listdir(tmp_path) == ["folder"]


def test_saving_follows_a_link_and_keeps_the_mode(tmp_path: Path) -> None:
    _, lowered = lowered_to(chip())
    (tmp_path / "real").write_bytes(b"old")
    (tmp_path / "real").chmod(0o640)
    (tmp_path / "link").symlink_to("real")

    lowered.save(tmp_path / "link")

    assert (tmp_path / "link").is_symlink()
    assert jit.load(tmp_path / "real")(1) == (3, "scaled")
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o640


def test_only_what_was_lowered_is_saved(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="not Scale"):
        jit.save(Scale(), tmp_path / "m")  # type: ignore[arg-type]
