"""Paths on hosts, as text: a sudoers file permits the text of a command, so a path has one spelling everywhere."""

from __future__ import annotations


def one_spelling(path: str) -> str:
    """Return a path without empty parts, `.` and a slash at its end. `..` stays: behind a link it is another folder."""
    parts = "/".join(part for part in path.split("/") if part not in ("", "."))
    return f"/{parts}" if path.startswith("/") else parts or ("." if path else "")
