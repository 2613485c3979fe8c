"""flash_cpu computes torch's tensors in torch's threads, and others in threads of its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mlbackends.base import registry

pytest.importorskip("torch")
backend = registry.load("mlbackends_kernels", "flash_cpu").FlashCpu()
pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(bool(backend.missing_parts()), reason="the library was not built"),
    pytest.mark.skipif(sys.platform != "linux", reason="it uses torch's threads on Linux only"),
]

BEFORE = """
import os, signal, torch
import numpy as np
import mlbackends
from mlbackends_kernels.attention_cpu import forward
forward.worth = lambda operations, moved: 3
torch.set_num_threads(4)
x = torch.randn(1, 4, 100, 16)
attend, count = mlbackends.scaled_dot_product_attention, lambda: len(os.listdir("/proc/self/task"))
torch.randn(1 << 20).exp()  # starts its threads
def gradients():
    one = x.clone().requires_grad_()
    return torch.autograd.grad(attend(one, one, one).sum(), one)[0]
"""


def printed(program: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", BEFORE + program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_the_threads_are_torch_s_for_its_tensors_alone() -> None:
    program = """
before, wanted = count(), attend(x, x, x)
gradients()
started = [count() - before]
out = attend(x.numpy(), x.numpy(), x.numpy())
print(*started, count() - before, np.array_equal(out, wanted))
"""
    assert printed(program) == "0 2 True"


def test_a_forked_child_waits_for_no_thread_of_its_parent() -> None:
    """Torch's own operations would wait there for threads that are missing."""
    program = """
wanted, of_inputs = attend(x, x, x), gradients()
child = os.fork()
if not child:
    signal.alarm(30)
    same = torch.equal(attend(x, x, x), wanted) and torch.equal(gradients(), of_inputs)
    os._exit(0 if same else 1)
print(os.waitpid(child, 0)[1])
"""
    assert printed(program) == "0"
