"""A whole page: its head, and a policy by which nothing is fetched and only our own script may run."""

import base64
import hashlib

from mlbackends_cli.web.elements import escaped


def document(title: str, body: str, style: str, script: str = "") -> str:
    """Return a page from HTML. style and script: ours, as they are; title: any text."""
    # The policy names what may run and how it looks: text that got through as a script would not run.
    policy = [
        "default-src 'none'",
        f"style-src 'sha256-{_digest(style)}'",
        *([f"script-src 'sha256-{_digest(script)}'"] if script else []),
        "base-uri 'none'",
        "form-action 'none'",
    ]
    end = f"<script>{script}</script>\n" if script else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped("; ".join(policy))}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escaped(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"{body}{end}</body>\n</html>\n"
    )


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
