"""Registering backends and preprocess functions."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from mlbackends import jit
from mlbackends.jit.backend import backend_factory


class Silent(jit.BackendInterface):
    def is_available(self) -> bool:
        return True

    def compile(self, processed: Any, method_compile_spec: Any) -> dict[str, Any]:
        return dict.fromkeys(method_compile_spec)

    def execute(self, handle: Any, inputs: list[Any]) -> list[Any]:
        return inputs


def unchanged(module: Any, spec: Any, handles: Any) -> Any:
    return module


def test_a_preprocess_function_is_registered_once() -> None:
    jit.register_preprocess("registered_once", unchanged)

    with pytest.raises(
        RuntimeError,
        match=r"^Preprocessing function for backend registered_once is already registered\. "
        r"Ensure that registration is only called once\.$",
    ):
        jit.register_preprocess("registered_once", unchanged)


def test_a_backend_is_registered_once_and_the_first_stays() -> None:
    jit.register_backend("first_stays", Silent)

    with pytest.raises(RuntimeError, match="Backend first_stays is already registered"):
        jit.register_backend("first_stays", Other)
    assert backend_factory("first_stays") is Silent


class Module:
    def forward(self, x: int) -> int:
        return x


def test_a_function_makes_an_instance_at_each_lowering() -> None:
    made = []

    def make() -> Silent:
        made.append(Silent())
        return made[-1]

    jit.register_backend("made_by_function", make)
    jit.register_preprocess("made_by_function", unchanged)

    assert jit.to_backend("made_by_function", Module(), {"forward": 1})(3) == 3
    assert jit.to_backend("made_by_function", Module(), {"forward": 1})(4) == 4
    assert len(made) == 2


def test_a_factory_that_makes_something_else_is_refused() -> None:
    jit.register_backend("makes_a_text", lambda: "text")  # type: ignore[arg-type,return-value]
    jit.register_preprocess("makes_a_text", unchanged)

    with pytest.raises(TypeError, match="returned str, no BackendInterface"):
        jit.to_backend("makes_a_text", Module(), {"forward": 1})


class Other(Silent):
    pass


class Half(jit.BackendInterface):
    def is_available(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("backend", "text"),
    [
        (Half, "does not define compile, execute"),
        (int, "a subclass of BackendInterface or a function that makes an instance, not .*int"),
        (Silent(), "not .*Silent object"),
        (None, "not None"),
    ],
)
def test_what_is_no_backend_is_refused(backend: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        jit.register_backend("no_backend", backend)


@pytest.mark.parametrize("name", ["", "two words", "line\nfeed", "1st", "a-b"])
def test_a_name_is_an_identifier(name: str) -> None:
    with pytest.raises(RuntimeError, match="is an identifier"):
        jit.register_backend(name, Silent)
    with pytest.raises(RuntimeError, match="is an identifier"):
        jit.register_preprocess(name, unchanged)


def test_a_name_is_a_text_and_a_preprocess_function_is_callable() -> None:
    with pytest.raises(TypeError, match="is a str, not int"):
        jit.register_backend(1, Silent)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is callable, not NoneType"):
        jit.register_preprocess("no_function", None)  # type: ignore[arg-type]


def test_of_many_threads_one_registers_a_name() -> None:
    start = threading.Barrier(8)
    outcomes = []

    def register() -> None:
        start.wait()
        try:
            jit.register_backend("one_of_many", Silent)
            outcomes.append(True)
        except RuntimeError:
            outcomes.append(False)

    threads = [threading.Thread(target=register) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False] * 7 + [True]
