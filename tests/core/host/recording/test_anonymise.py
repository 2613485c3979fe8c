"""Stand-ins: what names somebody is gone, what was equal stays equal, and a probe reads what it read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlbackends.host.recording.anonymise import Anonymiser, SecretsRemover
from mlbackends.host.redaction import COMMON_WORDS, Names

NAMES = Names(node="node7.cluster.example", user="alice", home="/home/alice")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/home/alice/venv/lib", "/home/user/venv/lib"),
        ("/home/alice", "/home/user"),
        ("/home/alicent/x", "/home/other-1/x"),
        ("/home/bob/x:/home/bob/y", "/home/other-1/x:/home/other-1/y"),
        ("run by alice on node7", "run by user on host"),
        ("node7.cluster.example", "host"),
        ("node71", "node71"),
        ("malice", "malice"),
        ("/scratch/alice/x", "/scratch/user/x"),
        ("https://me:pass@example.org/x", "https://redacted@example.org/x"),
        ("a" * 40 + "://me:pass@h", "a" * 40 + "://redacted@h"),
        ("https://redacted@example.org/x", "https://redacted@example.org/x"),
        ("link 52:54:00:ab:cd:ef up", "link 02:00:00:00:00:01 up"),
        ("GPU-5a1e3f2c-0b4d-4c8e-9f00-112233445566", "GPU-00000000-0000-4000-8000-000000000001"),
        ("1321020045678", "0000000000000"),
        ("/mnt/c/Users/Bob/x", "/mnt/c/Users/other-1/x"),
        ("C:\\Users\\Bob\\x", "C:\\Users\\other-1\\x"),
        ("/nfs/home/bob/x", "/nfs/home/other-1/x"),
        ("is 52-54-00-ab-cd-ef.", "is 02-00-00-00-00-01."),
        ("BOOTIF=01-52-54-00-ab-cd-ef", "BOOTIF=02-00-00-00-00-00-01"),
        ("mac:52:54:00:ab:cd:ef", "mac:02:00:00:00:00:01"),
        (
            "/kubepods-pod5a1e3f2c_0b4d_4c8e_9f00_112233445566.slice",
            "/kubepods-pod00000000_0000_4000_8000_000000000001.slice",
        ),
        ("/docker-" + "0a" * 32 + ".scope", "/docker-f" + "0" * 62 + "1.scope"),
        ("/ecs/" + "ab" * 16 + "/x", "/ecs/f" + "0" * 30 + "1/x"),
        ("pod" + "ab" * 16, "podf" + "0" * 30 + "1"),
        ("git " + "ab" * 20, "git " + "ab" * 20),
        ("GPU-0123456789abcdef", "GPU-0000000000000001"),
        ("version 1.2.3.4", "version 1.2.3.4"),
    ],
)
def test_what_names_somebody_gets_a_stand_in_of_its_form(before: str, after: str) -> None:
    assert Anonymiser(NAMES, ["1321020045678"]).text(before) == after


def test_what_was_equal_stays_equal_and_what_differed_differs() -> None:
    anonymiser = Anonymiser(NAMES)
    one = anonymiser.text("5a1e3f2c-0b4d-4c8e-9f00-112233445566")
    other = anonymiser.text("5a1e3f2c-0b4d-4c8e-9f00-112233445567")
    assert one != other
    assert anonymiser.text("again 5A1E3F2C-0B4D-4C8E-9F00-112233445566") == f"again {one}"


def test_it_counts_what_it_has_replaced() -> None:
    anonymiser = Anonymiser(NAMES)
    anonymiser.text("alice alice node7 https://me:x@h")
    assert anonymiser.replaced == {"user name": 2, "host name": 1, "login in an address": 1}


@pytest.mark.parametrize("name", sorted(COMMON_WORDS))
def test_a_name_that_is_a_word_is_replaced_in_the_home_folder_alone(name: str) -> None:
    anonymiser = Anonymiser(Names(node=name, user=name, home=f"/people/{name}"))
    assert anonymiser.text(f"/dev/{name}/x") == f"/dev/{name}/x"
    assert anonymiser.text(f"/people/{name}/x") == "/home/user/x"


def test_bytes_that_are_no_text_stay_what_they_are() -> None:
    data = b"\xff\xfe alice \x80"
    assert Anonymiser(NAMES).data(data) == b"\xff\xfe user \x80"


def test_names_of_fields_stay_and_paths_as_keys_do_not() -> None:
    value = {"alice": ["/home/alice"], "/home/alice/x": {"n": 1}}
    assert Anonymiser(NAMES).value(value) == {"alice": ["/home/user"], "/home/user/x": {"n": 1}}


def test_without_anonymising_only_secrets_go() -> None:
    text = "alice on node7 at /home/alice, 52:54:00:ab:cd:ef, https://me:pass@h/"
    assert SecretsRemover().text(text) == text.replace("me:pass", "redacted")


_PIECES = st.sampled_from(
    [
        "alice",
        "node7",
        "/home/alice",
        "/home/bob",
        "52:54:00:ab:cd:ef",
        "x",
        "/",
        " ",
        ":",
        "=",
        "-",
    ]
)


@given(st.lists(_PIECES | st.text(max_size=6), max_size=30))
def test_a_second_anonymiser_changes_nothing_but_numbers(pieces: list[str]) -> None:
    def without_numbers(text: str) -> str:
        return "".join("0" if letter.isdigit() else letter for letter in text)

    once = Anonymiser(NAMES).text("".join(pieces))
    assert without_numbers(Anonymiser(NAMES).text(once)) == without_numbers(once)


@given(st.lists(_PIECES, max_size=30))
def test_no_home_folder_of_a_person_is_left(pieces: list[str]) -> None:
    text = Anonymiser(NAMES).text(" ".join(pieces))
    assert "/home/alice" not in text
    assert "/home/bob" not in text
    assert "52:54:00" not in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/data/bo/lib", "/data/user/lib"),
        ("/data/bo", "/data/user"),
        ("/bo/lib:/data/bo:/scratch/bo/x", "/user/lib:/data/user:/scratch/user/x"),
        ("-L/data/bo/lib -I/data/bo/include", "-L/data/user/lib -I/data/user/include"),
        ('{"library_path": "/data/bo/x.so"}', '{"library_path": "/data/user/x.so"}'),
        ("file:///data/bo/x", "file:///data/user/x"),
        ("/usr/local/bo/lib", "/usr/local/user/lib"),
        ("/data/bo-x/lib", "/data/bo-x/lib"),
        ("/data/bob/lib", "/data/bob/lib"),
        ("/sys/class/bo/x", "/sys/class/bo/x"),
        ("/usr/lib/bo/x", "/usr/lib/bo/x"),
        ("bo on bo", "bo on bo"),
    ],
)
def test_a_short_name_is_replaced_where_it_is_a_part_of_a_path(before: str, after: str) -> None:
    assert Anonymiser(Names(user="bo")).text(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/opt/envs/alice-torch/x.so", "/opt/envs/user-torch/x.so"),
        ("0::/user.slice/user-alice.slice", "0::/user.slice/user-user.slice"),
        ("/scratch/node7_tmp/x", "/scratch/host_tmp/x"),
        ("/usr/lib/x-alice-1.so", "/usr/lib/x-alice-1.so"),
        ("/opt/malice-1", "/opt/malice-1"),
        ("tcp://203.0.113.77:80, 10.2.0.1", "tcp://198.18.0.1:80, 10.2.0.1"),
        ("tcp://127.0.0.1:80", "tcp://127.0.0.1:80"),
    ],
)
def test_a_name_within_a_part_of_a_path_is_replaced(before: str, after: str) -> None:
    assert Anonymiser(NAMES).text(before) == after


def test_one_gpu_of_amd_is_one_in_both_of_its_spellings() -> None:
    anonymiser = Anonymiser(NAMES, ["GPU-00000000075bcd15"])
    assert anonymiser.text("unique_id 123456789") == "unique_id 1"
    assert anonymiser.text("GPU-00000000075bcd15") == "GPU-0000000000000001"
    assert anonymiser.text("unique_id 0") == "unique_id 0"


def test_fields_that_name_are_replaced_however_short_the_name_is() -> None:
    told = {"uname": {"nodename": "vm"}, "environment": {"USER": "x", "LOGNAME": "x", "A": "x"}}
    assert Anonymiser(Names(node="vm", user="x")).description(told) == {
        "uname": {"nodename": "host"},
        "environment": {"USER": "user", "LOGNAME": "user", "A": "x"},
    }


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        ("NCCL_COMM_ID", "10.1.2.3:4242", "198.18.0.1:4242"),
        ("NCCL_COMM_ID", "[fe80::1234]:4242", "[2001:db8::1]:4242"),
        ("JAX_COORDINATOR_ADDRESS", "gw7.corp:80", "server-1.example:80"),
        ("JAX_COORDINATOR_ADDRESS", "localhost:80", "localhost:80"),
        ("KUBERNETES_SERVICE_HOST", "10.1.2.3", "198.18.0.1"),
        ("INIT_METHOD", "tcp://203.0.113.77:29500", "tcp://198.18.0.1:29500"),
        ("CUDNN_VERSION", "9.1.0.70", "9.1.0.70"),
        ("PIP_INDEX_URL", "https://pypi.corp/x", "https://server-1.example/x"),
        ("PIP_INDEX_URL", "https://pypi.org/simple", "https://pypi.org/simple"),
        ("PIP_INDEX_URL", "https://10.9.9.9/x", "https://198.18.0.1/x"),
        ("NCCL_SOCKET_IFNAME", "eth0,^docker", "eth0,^docker"),
        ("HSA_OVERRIDE_GFX_VERSION", "10.3.0", "10.3.0"),
        ("LD_LIBRARY_PATH", "/opt/x-1.2.3.4/lib::/opt/1.2.3.4", "/opt/x-1.2.3.4/lib::/opt/1.2.3.4"),
        ("BIND", "127.0.0.1 0.0.0.0 ::1 ::", "127.0.0.1 0.0.0.0 ::1 ::"),
    ],
)
def test_addresses_in_variables_get_stand_ins(name: str, before: str, after: str) -> None:
    assert Anonymiser().description({"environment": {name: before}})["environment"] == {name: after}
