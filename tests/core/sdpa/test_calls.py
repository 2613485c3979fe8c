"""Which backend computed the last call, and the line for each call that MLBACKENDS_LOG asks for."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np

import mlbackends

if TYPE_CHECKING:
    from mlbackends.sdpa.calls import AttentionCall

X = np.ones((1, 2, 8, 16), "f4")
APART = np.ones((1, 2, 8, 32), "f4")[..., ::2]  # rows whose elements are not contiguous


def test_the_backend_and_why_the_first_one_did_not_are_known_after_a_call() -> None:
    mlbackends.scaled_dot_product_attention(X, X, X)
    first = mlbackends.last_attention()
    mlbackends.scaled_dot_product_attention(X, X, APART)
    second = mlbackends.last_attention()

    assert first is not None and second is not None
    assert first.why == "" and first[2:] == ("forward", (1, 2, 8, 16), "float32", "cpu")
    assert second.backend == "math" != first.backend
    assert second.why.startswith(f"{first.backend}: the strides of the last dimension")
    assert "efficient_cuda" not in second.why  # it is for other devices


def test_the_backward_pass_is_a_call_too() -> None:
    results = mlbackends.scaled_dot_product_attention(X, X, X, return_logsumexp=True)
    mlbackends.scaled_dot_product_attention_backward(X, X, X, X, *results)
    call = mlbackends.last_attention()
    assert call is not None and call.direction == "backward"


def test_each_thread_has_its_own_last_call() -> None:
    mlbackends.scaled_dot_product_attention(X, X, X)
    seen: list[AttentionCall | None] = []
    thread = threading.Thread(target=lambda: seen.append(mlbackends.last_attention()))
    thread.start()
    thread.join()
    assert seen == [None]


def test_a_variable_prints_a_line_for_each_call() -> None:
    program = (
        "import numpy as np, mlbackends; x = np.ones((1, 2, 8, 16), 'f4');"
        "apart = np.ones((1, 2, 8, 32), 'f4')[..., ::2];"
        "mlbackends.scaled_dot_product_attention(x, x, apart);"
        "mlbackends.scaled_dot_product_attention(x, x, apart)"
    )
    lines = {}
    for words in ("attention", "other,attention", "other", ""):
        environment = {**os.environ, "MLBACKENDS_LOG": words}
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        lines[words] = done.stderr.splitlines()

    assert len(lines["attention"]) == len(lines["other,attention"]) == 2
    assert lines["other"] == lines[""] == []
    start = "mlbackends: attention, forward of (1, 2, 8, 16) float32 on cpu: math ("
    assert lines["attention"][0].startswith(start) and "strides" in lines["attention"][0]
