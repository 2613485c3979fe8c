"""Our manual pages as plain text, for systems without man: the macros that man/generate.py writes."""

import shlex

from mlbackends_cli.text.prose import wrapped

_UNQUOTED = (("\\&", ""), ("\\-", "-"), ("\\e", "\\"))


def plain(roff: str, width: int) -> str:
    """Return a page as lines of at most `width` columns."""
    lines: list[str] = []
    words, indent, is_literal, is_term = "", "  ", False, False

    def end_paragraph() -> None:
        nonlocal words
        lines.extend(wrapped(words.strip(), width, indent, indent))
        words = ""

    for line in roff.splitlines():
        macro, _, rest = line.partition(" ") if line[:1] == "." else ("", "", line)
        text = _unquoted(rest)
        if macro in ("", ".B", ".I", ".BR"):
            if macro == ".BR":  # its arguments alternate between fonts, without blanks
                text = "".join(_unquoted(each) for each in shlex.split(rest.replace("\\", "\\\\")))
            if is_literal:
                lines.append(f"{indent}{text}")
            elif is_term:
                lines.append(f"  {text}")
                is_term = False
            else:
                words += f" {text}"
            continue
        end_paragraph()
        if macro in (".SH", ".SS"):
            lines += ["", text if macro == ".SH" else f" {text}"]
        if macro in (".SH", ".SS", ".PP"):
            indent = "  "
        if macro == ".PP":
            lines.append("")
        if macro == ".TP":
            indent, is_term = "      ", True
        if macro in (".nf", ".fi"):
            is_literal = macro == ".nf"
    end_paragraph()
    return "\n".join(lines).strip("\n") + "\n"


def _unquoted(text: str) -> str:
    for written, character in _UNQUOTED:
        text = text.replace(written, character)
    return text
