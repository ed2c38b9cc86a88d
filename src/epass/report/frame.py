"""The frame of a page that needs nothing but itself: no network, and no script but the one it comes with."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files


def frame(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """A page in the style of our reports; `style` is added to it, `script` runs when the body is there."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    if script:
        policy += f"; script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
        body += f"\n<script>{script}</script>"
    return PAGE.format(title=escape(title), policy=policy, style=resource("page.css") + style, body=body)


def resource(name: str) -> str:
    """A file that lies beside this one."""
    return files("epass.report").joinpath(name).read_text(encoding="utf-8")


PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>
{style}</style>
</head>
<body><main>
{body}
</main></body>
</html>
"""
