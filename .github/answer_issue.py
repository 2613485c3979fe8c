"""Comment on the issue of an event with what `backends doctor --from` finds in it: a step of action.yml.

    BACKENDS=backends TOKEN=... python -I .github/answer_issue.py

The text of the issue goes to the command's standard input, and the command's Markdown, which escapes what it
quotes, into the body of a request: neither is a part of a command, an address or a line of the log. An issue
has one comment, recognised by its first line and its author, which changes when the issue is edited; where
nothing is found there is none. GitHub's runner sets GITHUB_EVENT_PATH, GITHUB_API_URL and the like.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

MARK = "<!-- backends doctor --from -->"
_ABOUT = (
    "*`backends doctor --from` read the text of this issue. It knows public reports and versions, not your"
    " machine, and may be wrong. Edit the issue, and this comment follows.*"
)
_NOTHING = "*`backends doctor --from` knows no cause for what the issue now says.*"
_MOST_TEXT, _MOST_COMMENT, _PAGES, _SECONDS = 1 << 20, 60_000, 50, 120


class Failed(Exception):
    """What keeps this from answering, for people."""


class NoRedirect(HTTPRedirectHandler):
    """Refuse to go elsewhere: the token would go there too."""

    def redirect_request(self, *_: Any) -> None:
        """Return no request, so that the answer is an error."""


def api(method: str, path: str, value: Any = None) -> Any:
    """Return what GitHub's REST API answers. Raises HTTPError for a status that is none of success."""
    data = None if value is None else json.dumps(value).encode()
    request = Request(f"{os.environ['GITHUB_API_URL']}/{path}", data, method=method)
    request.add_header("Accept", "application/vnd.github+json")
    request.add_unredirected_header("Authorization", f"Bearer {os.environ['TOKEN']}")
    with build_opener(NoRedirect).open(request, timeout=30) as answer:
        return json.load(answer)


def found_in(text: str) -> tuple[int, str]:
    """Return the exit code of `backends doctor` for a text, and its answer in Markdown."""
    command = [os.environ["BACKENDS"], "doctor", "--from=-", "--format=markdown"]
    command.append(f"--fail-on={os.environ.get('FAIL_ON') or 'error'}")
    environment = {name: value for name, value in os.environ.items() if name != "TOKEN"}
    data = text[:_MOST_TEXT].encode("utf-8", "replace")
    try:
        done = subprocess.run(
            command, input=data, capture_output=True, check=False, timeout=_SECONDS, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"backends doctor gave no answer: {type(error).__name__}") from None
    return done.returncode, done.stdout.decode("utf-8", "replace").strip()


def comment_of(answer: str) -> str:
    """Return a comment with an answer; one that is too long for GitHub ends after one of its paragraphs."""
    if len(answer) > _MOST_COMMENT:
        answer = answer[: answer.rfind("\n\n", 0, _MOST_COMMENT)]
    return f"{MARK}\n{answer}\n\n{_ABOUT}"


def earlier(comments: str) -> dict[str, Any] | None:
    """Return the comment that this made on an issue before: by its first line, and by its author."""
    try:
        login = api("GET", "user")["login"]
    except HTTPError:  # the token of a job or an app is nobody's
        login = ""
    for page in range(1, _PAGES + 1):
        found = api("GET", f"{comments}?per_page=100&page={page}")
        for comment in found:
            user = comment.get("user") or {}
            is_own = user.get("login") == login if login else user.get("type") == "Bot"
            if is_own and (comment.get("body") or "").startswith(MARK):
                return dict(comment)
        if len(found) < 100:
            break
    return None


def answer() -> int:
    """Comment on the issue, and return the exit code of `backends doctor`. Raises Failed."""
    with open(os.environ["GITHUB_EVENT_PATH"], encoding="utf-8") as file:
        issue = json.load(file).get("issue")
    if not issue:
        raise Failed("this event has no issue: use `on: issues`, with types: [opened, edited]")
    code, found = found_in(f"{issue.get('title') or ''}\n\n{issue.get('body') or ''}")
    if code not in (0, 1, 2, 3):  # 2: no known output and no known message
        raise Failed(f"backends doctor ended with {code}")
    repository = os.environ["GITHUB_REPOSITORY"]
    comments = f"repos/{repository}/issues/{int(issue['number'])}/comments"
    own, body = earlier(comments), comment_of(found) if code == 1 else f"{MARK}\n{_NOTHING}"
    if own is None and code == 1:
        api("POST", comments, {"body": body})
        print("commented")
    elif own is not None and own["body"] != body:
        api("PATCH", f"repos/{repository}/issues/comments/{int(own['id'])}", {"body": body})
        print("changed the comment")
    else:
        print("nothing to comment")
    return code


def main() -> int:
    """Answer, and write the exit code to GITHUB_OUTPUT; return 1 if that is not possible."""
    try:
        code = answer()
    except HTTPError as error:
        why = ": the job needs `permissions: issues: write`" if error.code in (401, 403, 404) else ""
        print(f"GitHub answered {error.code}{why}", file=sys.stderr)
    except Failed as error:
        print(error, file=sys.stderr)
    except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"no comment was made: {type(error).__name__}", file=sys.stderr)
    else:
        with open(os.environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as file:
            file.write(f"exit-code={code}\n")
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
