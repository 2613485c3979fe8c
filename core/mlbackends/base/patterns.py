"""Regular expressions that are compiled when they are first used.

There are a hundred of them in the probes, most for files that a machine does not have; compiling them all
would be a tenth of a survey.
"""

import re
from typing import Any, cast


class _Lazy:
    """A pattern that is compiled at its first use."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text, self._flags = text, flags

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(self._text, self._flags), name)
        # The next call finds the method here, and does not come by again.
        self.__dict__[name] = method
        return method


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return what behaves as `re.compile(text, flags)` does, except in `isinstance`."""
    return cast("re.Pattern[str]", _Lazy(text, flags))


#: The name and password in an address, with the signs around it. No scheme is needed: looking for the
#: beginning of a word in a long one takes the square of its length.
URL_LOGIN = pattern(r"://[^/\s@]*@")
#: Secrets, with what is kept in front of them: the signature or token in an address, an option with one, an
#: HTTP header, a setting such as password=, and the tokens of GitHub, GitLab, Hugging Face, OpenAI and its
#: like, Slack and AWS.
_SECRET = pattern(
    r"((?:[?&](?i:sig|(?:x-\w{3,4}-)?(?:signature|credential|security-token)|(?:\w{1,20}_)?token|auth"
    r"|(?:api[-_]?|access[-_]?)?key|password|(?:client_)?secret)"
    r"|-(?i:(?:[\w-]{1,20}-)?(?:token|api-?key|password|secret)))[= ]"
    r"|(?<![\w/?&-])(?i:(?:\w{1,20}_)?(?:token|api_?key|passw(?:or)?d|(?:client_)?secret))="
    r"|\b(?i:Bearer|Basic) +)[^\s&#\"']+"
    r"|\b(?:gh[opsur]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|AKIA)(?=[\w-]{0,30}\d)[\w-]{16,}"
)
#: What each of these contains, so that most texts are left alone without a pattern.
_OF_SECRETS = (
    *(
        word + end
        for name in ("sig", "ignature", "redential", "oken", "auth", "key", "assword", "asswd", "ecret")
        for word in (name, name.upper())
        for end in "= "
    ),
    *("earer ", "EARER ", "asic ", "ASIC ", "ghp_", "gho_", "ghs_", "ghu_", "ghr_", "hub_pat_"),
    *("glpat-", "sk-", "xox", "AKIA"),
)
#: Every report has a fact hf_home.
_OF_HUGGING_FACE = pattern(r"hf_[0-9A-Za-z]{16}")


def may_have_secrets(text: str) -> bool:
    """Return whether a text, such as a whole report, has what a secret is recognised by."""
    return any(sign in text for sign in _OF_SECRETS) or bool(_OF_HUGGING_FACE.search(text))


def without_secrets(text: str) -> str:
    """Return a text without the logins of addresses, and the secrets that their form or place shows."""
    if "://" in text:
        text = URL_LOGIN.sub("://redacted@", text)
    if not may_have_secrets(text):
        return text
    return _SECRET.sub(lambda found: f"{found[1] or ''}redacted", text)


UUID = pattern(r"[0-9a-fA-F]{8}(?P<sign>[-_])(?:[0-9a-fA-F]{4}(?P=sign)){3}[0-9a-fA-F]{12}(?![0-9a-fA-F])")
#: Of six bytes; of eight as InfiniBand has them; of seven, of which the first is the kind, in BOOTIF=.
HARDWARE_ADDRESS = pattern(
    r"(?<![0-9A-Za-z])[0-9a-fA-F]{2}(?P<sign>[:-])(?:[0-9a-fA-F]{2}(?P=sign)){4,6}[0-9a-fA-F]{2}"
    r"(?![0-9A-Za-z])"
)


#: A container's or a machine's; in the name of a library it is the hash that delvewheel adds.
LONG_ID = pattern(
    r"(?:(?<![0-9A-Za-z])|(?<=pod))(?=\d*[a-fA-F])(?:[0-9a-fA-F]{64}|[0-9a-fA-F]{32})(?![0-9A-Za-z])"
    r"(?!\.(?:dll|pyd|so|dylib)\b)"
)
#: The folder that holds homes, and the name of one in it.
HOME = pattern(
    r"(?<!/dev)(?<!/etc)(?<!/usr)(?<!/sys)(/home/|(?i:/Users/|\\Users\\+))"
    # Names of Windows may have spaces, which only a separator behind them shows.
    r"(?!(?:Public|Default|All Users)[/\\])"
    r"((?:(?<=(?i::/Users/))|(?<=(?i:Users\\)))[^/\\:;,\"'\n]{1,64}(?=[/\\])|[^/\\\s:;,\"']+)"
)
#: What Windows calls a user or a machine.
SID = pattern(r"\bS-1-5-21(?:-\d{1,10}){3,4}\b")


#: For `str.translate`: every hexadecimal digit as 0, to look for a form without a pattern.
DIGITS_AS_ZEROS = str.maketrans(dict.fromkeys("123456789abcdefABCDEF", "0"))


#: A character that cannot or must not be shown.
UNFIT = pattern(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters, which XML forbids and terminals execute
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # what changes the direction of writing
    "\ud800-\udfff\ufeff\ufffe\uffff]"  # surrogates, and code points that are not characters
)


def bytes_pattern(text: bytes, flags: int = 0) -> re.Pattern[bytes]:
    """Return the same for bytes."""
    return cast("re.Pattern[bytes]", _Lazy(text, flags))


#: A command within a text: in backticks, or with its options.
_TYPED = pattern(r"\S*`[^`\n]+`\S*|\bbackends [a-z]+(?: --?[a-z][\w-]*)*")


def unbroken(text: str, width: int) -> str:
    """Return text whose commands have no blank to be wrapped at, if they fit the width."""
    return _TYPED.sub(
        lambda found: found[0].replace(" ", "\xa0") if len(found[0]) <= width else found[0], text
    )
