"""The action's mode `issue`: its real step against a stand-in for GitHub's API, with texts of anybody."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
(STEP,) = [step for step in ACTION["runs"]["steps"] if step["id"] == "answer"]
PAGE = (ROOT / "docs" / "ci.md").read_text()
MARK = "<!-- backends doctor --from -->"
CUDNN = "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory"
TOKEN = "a-token-of-the-job"


class GitHub:
    """The comments of issue 7 of o/r, and what was asked of them."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str]] = []
        self.tokens: list[str] = []
        #: What it answers to a method instead: a status, and a header with its value.
        self.instead: dict[str, tuple[int, str, str]] = {}
        #: Whom the token is of; "" for a job's.
        self.login = ""
        self.url = ""

    def said(self, body: str, kind: str = "User", login: str = "somebody") -> dict[str, Any]:
        comment = {"id": 1000 + len(self.comments), "body": body, "user": {"type": kind, "login": login}}
        self.comments.append(comment)
        return comment

    def answer(self, method: str, path: str, value: Any) -> tuple[int, Any]:
        url = urlsplit(path)
        if url.path == "/user":
            return (200, {"login": self.login}) if self.login else (403, {"message": "not a user"})
        if method == "POST" and url.path == "/repos/o/r/issues/7/comments":
            login = self.login or "github-actions[bot]"
            return 201, self.said(value["body"], "User" if self.login else "Bot", login)
        if method == "PATCH" and (match := re.fullmatch(r"/repos/o/r/issues/comments/(\d+)", url.path)):
            (comment,) = [comment for comment in self.comments if comment["id"] == int(match[1])]
            return 200, comment | {"body": comment.update(body=value["body"])}
        if method == "GET" and url.path == "/repos/o/r/issues/7/comments":
            page, size = (int(parse_qs(url.query)[name][0]) for name in ("page", "per_page"))
            return 200, self.comments[(page - 1) * size : page * size]
        return 404, {"message": "Not Found"}

    @property
    def changes(self) -> list[str]:
        return [method for method, _ in self.asked if method != "GET"]


@pytest.fixture
def github() -> Iterator[GitHub]:
    """Serve a stand-in for GitHub's API on this machine."""
    state = GitHub()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            size = int(self.headers["content-length"] or 0)
            value = json.loads(self.rfile.read(size)) if size else None
            state.asked.append((self.command, self.path))
            state.tokens.append(self.headers["authorization"] or "")
            status, name, to = state.instead.get(self.command, (0, "", ""))
            body: Any = {}
            if not status:
                status, body = state.answer(self.command, self.path, value)
            data = json.dumps(body).encode() if name != "garbage" else b"<html>"
            self.send_response(status)
            if name == "location":
                self.send_header(name, to)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = _serve  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield state
    server.shutdown()
    server.server_close()


def program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def answered(
    github: GitHub, folder: Path, issue: Any, backends: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the step of the action on an event; backends: a shell command instead of the real one."""
    python = shlex.quote(sys.executable)
    program(folder / "bin/python", f'exec {python} "$@"')
    program(folder / "bin/backends", backends or f'exec {python} -m mlbackends "$@"')
    (folder / "event.json").write_text(json.dumps({"action": "opened", "issue": issue}))
    (folder / "step.sh").write_text(STEP["run"])
    (folder / "output").write_text("")
    environment = {
        **os.environ,
        "BACKENDS": str(folder / "bin/backends"),
        "SCRIPT": str(ROOT / ".github/answer_issue.py"),
        "FAIL_ON": "error",
        "TOKEN": TOKEN,
        "GITHUB_API_URL": github.url,
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_EVENT_PATH": str(folder / "event.json"),
        "GITHUB_OUTPUT": str(folder / "output"),
        **variables,
    }
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(folder / "step.sh")],
        capture_output=True, text=True, check=False, cwd=folder, env=environment, timeout=120,
    )  # fmt: skip


def issue(body: str | None, title: str = "It fails") -> dict[str, Any]:
    return {"number": 7, "title": title, "body": body}


def test_an_issue_has_one_comment_that_follows_its_edits(github: GitHub, tmp_path: Path) -> None:
    first = answered(github, tmp_path, issue(f"```\n{CUDNN}\n```"))
    assert (first.returncode, first.stdout) == (0, "commented\n"), first.stderr
    assert (tmp_path / "output").read_text() == "exit-code=1\n"
    (comment,) = github.comments
    assert comment["body"].startswith(MARK) and "`cudnn-9-missing`" in comment["body"]
    assert "pip install nvidia-cudnn-cu12" in comment["body"]
    assert set(github.tokens) == {f"Bearer {TOKEN}"}

    again = answered(github, tmp_path, issue(f"```\n{CUDNN}\n```"))
    assert again.stdout == "nothing to comment\n" and github.changes == ["POST"]

    edited = answered(github, tmp_path, issue("it is solved, thanks"))
    assert edited.stdout == "changed the comment\n" and github.changes == ["POST", "PATCH"]
    assert len(github.comments) == 1 and "knows no cause" in github.comments[0]["body"]

    answered(github, tmp_path, issue("no", title=f"Help: {CUDNN}"))
    assert len(github.comments) == 1 and "`cudnn-9-missing`" in github.comments[0]["body"]


@pytest.mark.parametrize(
    "body",
    [None, "", "I cannot log in, @alice", "\U0001f600 \u202e", "Package Version\n------- -----\npip 24.0"],
)
def test_nothing_is_said_where_nothing_is_known(body: str | None, github: GitHub, tmp_path: Path) -> None:
    done = answered(github, tmp_path, issue(body))

    assert (done.returncode, done.stdout, done.stderr) == (0, "nothing to comment\n", "")
    assert github.changes == []


HOSTILE = [
    "${{ github.token }} $(touch pwned) `touch pwned`; touch pwned",
    "@alice @org/team #1 GH-2 other/repo#3 https://bad.example www.bad.example",
    "``` \n````` </details> <img src=x onerror=alert(1)> [click](https://bad.example) ![x](https://bad.example)",
    f"{MARK} --> <!-- | a | b |",
    "::error::owned ::add-mask::x ::set-output name=exit-code::0",
    "\udc80 \x00 \x1b[31m \u2028 \u202e",
    "x" * 60_000,
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_means_nothing(hostile: str, github: GitHub, tmp_path: Path) -> None:
    done = answered(github, tmp_path, issue(f"{CUDNN} {hostile}\n::error::owned", title=hostile))

    assert (done.returncode, done.stdout, done.stderr) == (0, "commented\n", "")
    assert (tmp_path / "output").read_text() == "exit-code=1\n"
    assert not (tmp_path / "pwned").exists()
    (comment,) = github.comments
    assert comment["body"].startswith(f"{MARK}\n") and len(comment["body"]) < 65_536
    # What is not code: GitHub neither notifies, nor links, nor renders what is in code.
    bare = re.sub(r"(?s)(`+)(?!`).*?(?<!`)\1(?!`)", "", comment["body"].removeprefix(MARK))
    for meant in ("@alice", "@org", "#1", "GH-2", "https://", "www.bad", "<img", "</details>", "](", "<!--"):
        assert meant not in bare, bare


def test_a_huge_text_is_read_up_to_a_bound(github: GitHub, tmp_path: Path) -> None:
    done = answered(github, tmp_path, issue("spam @alice\n" * 300_000 + CUDNN))
    assert done.stdout == "nothing to comment\n", done.stderr

    found = "**1 error**\n\n" + "a line\n\n" * 20_000
    (tmp_path / "found").write_text(found)
    long = answered(github, tmp_path, issue("x"), "cat found; exit 1")
    assert long.stdout == "commented\n", long.stderr
    assert len(github.comments[0]["body"]) < 65_536 and "a line\n\n*`backends" in github.comments[0]["body"]


@pytest.mark.parametrize(
    ("kind", "login", "body"),
    [("User", "mallory", f"{MARK}\nmine"), ("Bot", "other[bot]", f"quoting {MARK}"), ("User", "x", "")],
)
def test_only_its_own_comment_is_changed(
    kind: str, login: str, body: str, github: GitHub, tmp_path: Path
) -> None:
    for _ in range(100):
        github.said("me too")
    github.said(body, kind, login)
    found = "echo found; exit 1"

    assert answered(github, tmp_path, issue("x"), found).stdout == "commented\n"
    assert github.comments[100]["body"] == body
    assert answered(github, tmp_path, issue("y"), "echo other; exit 1").stdout == "changed the comment\n"
    assert len(github.comments) == 102 and "other" in github.comments[101]["body"]


def test_a_token_of_a_person_finds_that_persons_comment(github: GitHub, tmp_path: Path) -> None:
    github.login = "maintainer"
    github.said(f"{MARK}\nof a job", "Bot", "github-actions[bot]")

    for text in ("one", "two"):
        assert answered(github, tmp_path, issue("x"), f"echo {text}; exit 1").returncode == 0
    assert [comment["user"]["login"] for comment in github.comments] == ["github-actions[bot]", "maintainer"]
    assert "two" in github.comments[1]["body"] and "of a job" in github.comments[0]["body"]


@pytest.mark.parametrize(
    ("instead", "said"),
    [
        ({"POST": (403, "", "")}, "GitHub answered 403: the job needs `permissions: issues: write`\n"),
        ({"POST": (500, "", "")}, "GitHub answered 500\n"),
        ({"GET": (302, "location", "/elsewhere")}, "GitHub answered 302\n"),
        ({"POST": (201, "garbage", "")}, "no comment was made: JSONDecodeError\n"),
    ],
)
def test_what_github_refuses_fails_the_step(
    instead: dict[str, tuple[int, str, str]], said: str, github: GitHub, tmp_path: Path
) -> None:
    github.instead = instead
    done = answered(github, tmp_path, issue("x"), "echo found; exit 1")

    assert (done.returncode, done.stdout, done.stderr) == (1, "", said)
    assert all(path != "/elsewhere" for _, path in github.asked)
    assert (tmp_path / "output").read_text() == ""


@pytest.mark.parametrize(
    ("event", "backends", "said"),
    [
        (None, "exit 1", "this event has no issue"),
        ([7], "exit 1", "no comment was made: AttributeError"),
        (issue("x") | {"number": "../../user"}, "exit 1", "no comment was made: ValueError"),
        (issue("x"), "exit 70", "backends doctor ended with 70"),
        (issue("x"), "kill -9 $$", "backends doctor ended with -9"),
    ],
)
def test_what_is_no_answer_makes_no_comment(
    event: Any, backends: str, said: str, github: GitHub, tmp_path: Path
) -> None:
    done = answered(github, tmp_path, event, backends)

    assert done.returncode == 1 and done.stderr.startswith(said) and done.stderr.count("\n") == 1
    assert github.changes == []


def test_nobody_answers(github: GitHub, tmp_path: Path) -> None:
    done = answered(github, tmp_path, issue("x"), "echo found; exit 1", GITHUB_API_URL="http://127.0.0.1:9")
    assert (done.returncode, done.stderr) == (1, "no comment was made: URLError\n")


def test_the_command_gets_the_text_and_no_token(github: GitHub, tmp_path: Path) -> None:
    command = 'printf "%s\\n" "$@" >arguments; cat >text; env >environment; exit 2'
    answered(github, tmp_path, issue("the body", title="the title"), command, FAIL_ON="warning")

    arguments = (tmp_path / "arguments").read_text().split()
    assert arguments == ["doctor", "--from=-", "--format=markdown", "--fail-on=warning"]
    assert (tmp_path / "text").read_text() == "the title\n\nthe body"
    assert TOKEN not in (tmp_path / "environment").read_text()


def test_the_workflow_of_the_page_is_one_that_answers() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (workflow,) = [yaml.safe_load(block) for block in blocks if "mode: issue" in block]

    assert workflow[True] == {"issues": {"types": ["opened", "edited"]}}  # "on" is true in YAML 1.1
    assert workflow["permissions"] == {"issues": "write"}
    (job,) = workflow["jobs"].values()
    assert [step["with"] for step in job["steps"]] == [{"mode": "issue"}]
    assert "github.event.issue.body" not in PAGE and "github.event.issue.title" not in PAGE
    assert STEP["if"] == "inputs.mode == 'issue'"
    expressions = re.findall(r"\$\{\{(.*?)\}\}", json.dumps(STEP))
    assert not [text for text in expressions if "event" in text]
