"""What never ends or never answers is refused soon, wherever a file can be named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from running import backends, backends_alone

if sys.platform != "linux":
    pytest.skip("the devices are Linux's", allow_module_level=True)

DEAD_MOUNT = Path(__file__).resolve().parents[1] / "dead_mount.py"
POLICY = "schema = 1\n"


@pytest.mark.parametrize(
    "words",
    [
        "fleet summarize", "fleet doctor", "fleet audit --policy POLICY", "fleet diff /dev/zero",
        "trace show", "trace diff POLICY", "diff -", "audit --policy", "audit --policy POLICY",
        "sdpa explain --problems",
        "flags check", "info --root",
    ],
)  # fmt: skip
def test_a_device_is_no_file(tmp_path: Path, words: str) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    words = words.replace("POLICY", str(policy))

    done = backends_alone(*words.split(), "/dev/zero", timeout=20)

    assert done.returncode == 2
    assert "/dev/zero" in done.stderr


def test_a_folder_may_have_what_never_ends(tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    frames = backends("info", "python", "--depth", "found", "--format", "frame").stdout
    (folder / "good.frame").write_text(frames)
    for name, target in {
        "zero.json": "/dev/zero",
        "fds": "/proc/self/fd",
        "dev": "/dev",
        "full": "/dev/full",
    }.items():
        (folder / name).symlink_to(target)
    os.mkfifo(folder / "fifo.json")

    done = backends_alone("fleet", "summarize", str(folder), "--format", "json", timeout=20)

    assert done.returncode == 0, done.stderr
    for name in ("zero", "fifo"):
        assert f'"{name}"' in done.stdout
    assert "it is not a regular file" in done.stdout
    for strange in ("/proc/self/fd", "/dev"):
        assert backends_alone("fleet", "summarize", strange, timeout=20).returncode in (0, 2, 3)


@pytest.mark.skipif(not os.access("/proc/kmsg", os.R_OK), reason="only root reads the kernel's messages")
@pytest.mark.parametrize(
    "words", ["diff PATH PATH", "flags check PATH", "trace show PATH", "fleet summarize PATH"]
)
def test_a_file_of_the_kernel_whose_next_line_may_never_come_is_not_waited_for(words: str) -> None:
    done = backends(*words.replace("PATH", "/proc/kmsg").split(), timeout=20)
    assert done.returncode in (0, 1, 2, 3), done.stderr


@pytest.mark.parametrize("path", ["-", "/dev/stdin"])
def test_a_policy_may_come_from_a_pipe(path: str) -> None:
    done = backends_alone("audit", "--depth", "found", "--policy", path, data=POLICY)
    too_long = backends_alone("audit", "--policy", path, data="#" * (2 << 20))

    assert "cannot be read" not in done.stderr
    assert (too_long.returncode, "larger than 1 MiB" in too_long.stderr) == (2, True)


@pytest.mark.parametrize("words", ["trace show", "fleet summarize", "fleet summarize LINKS"])
def test_a_dead_mount_is_given_up(tmp_path: Path, words: str) -> None:
    mount, links = tmp_path / "mount", tmp_path / "links"
    mount.mkdir()
    links.mkdir()
    (links / "node.json").symlink_to(mount / "log")
    words = words.replace("LINKS", str(links))
    path = [] if str(links) in words else [str(mount / "log")]
    command = [sys.executable, "-m", "mlbackends", *words.split(), *path]

    done = subprocess.run(
        [sys.executable, str(DEAD_MOUNT), str(mount), "silent", *command],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    if done.returncode == 77:
        pytest.skip(done.stderr)
    assert "file system at" in done.stdout + done.stderr
