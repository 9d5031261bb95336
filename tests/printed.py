"""The commands that a text offers to its reader."""

from __future__ import annotations

import re


def printed_commands(text: str) -> list[str]:
    """Return the commands that a text offers, in the form of a command line, without the program."""
    found = re.findall(r"(?:`|: )kafka-rollout ((?:[a-z]+ )+--[^`\n]*?)(?:`|\.?$|\. )", text, re.MULTILINE)
    return list(dict.fromkeys(found))


def filled_in(command: str) -> str:
    """Return a printed command with a name and a reason in their places."""
    return command.replace("NAME", "alice").replace("TEXT", "test")
