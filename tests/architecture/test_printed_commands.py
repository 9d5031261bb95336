"""Every command that a text of the product, a tool or the Makefile names exists and has the options that are named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.rooms import nodes_of
from tests.architecture.test_docs import HISTORY, PAGES, SOURCES, commands, page_id, problem_of
from tools.demo.folder import PROJECT_ROOT

_AFTER_NAME = re.compile(r"\bkafka-rollout((?: +[^\s`|;&)#\"']+)+)")
_QUOTED = re.compile(r"`([a-z][a-z-]*(?: [^`]+)?)`")
_PROSE = {"can", "does", "has", "is", "made", "that", "there", "with"}  # "kafka-rollout is …"
LIMIT = 35
FILES = [
    *SOURCES,
    *(PROJECT_ROOT / "tools").rglob("*.py"),
    *(PROJECT_ROOT / "plugins").rglob("*.js"),
    *(PROJECT_ROOT / "plugins").rglob("*.html"),
    PROJECT_ROOT / "Makefile",
]


def texts(file: Path) -> Iterator[str]:
    """The texts of a file; in a Python file the strings as the interpreter joins them, with VALUE for each value."""
    if file.suffix != ".py":
        yield file.read_text(encoding="utf-8").replace("`", '"')  # a template of JavaScript
        return
    inner: set[int] = set()
    for node in nodes_of(file.read_text(encoding="utf-8")):
        if isinstance(node, ast.JoinedStr):
            inner |= {id(part) for part in node.values}
            yield "".join(part.value if isinstance(part, ast.Constant) else "VALUE" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def named(text: str) -> Iterator[list[str]]:
    text = re.sub(r"\s+", " ", text.replace("\\\n", " "))
    for found in _AFTER_NAME.finditer(text):
        words = until_end(found[1].split())
        if re.fullmatch(r"[a-z][a-z-]*", words[0]) and words[0] not in _PROSE:
            yield words
    yield from quoted(text)


def quoted(text: str) -> Iterator[list[str]]:
    """What is in backquotes and begins with a command."""
    for found in _QUOTED.finditer(text):
        words = until_end(found[1].split())
        if words and words[0] in commands().commands:
            yield words


def until_end(words: list[str]) -> list[str]:
    """The words until the end of the sentence or a clause, or until the next command."""
    call: list[str] = []
    for word in words:
        if word == "kafka-rollout":
            break
        call.append(word.rstrip(".,:"))
        if call[-1] != word:
            break
    return call


@pytest.mark.parametrize("file", FILES, ids=page_id)
def test_every_command_that_a_text_names_exists(file: Path) -> None:
    wrong = [f"{' '.join(words)}: {why}" for text in texts(file) for words in named(text) if (why := problem_of(words))]
    assert wrong == []


@pytest.mark.parametrize("page", [page for page in PAGES if page_id(page) not in HISTORY], ids=page_id)
def test_every_command_in_backquotes_on_a_page_exists(page: Path) -> None:
    found = quoted(re.sub(r"\s+", " ", page.read_text(encoding="utf-8")))
    assert [f"{' '.join(words)}: {why}" for words in found if (why := problem_of(words))] == []


def test_a_command_that_is_gone_is_seen() -> None:
    text = "Run `kafka-rollout no-such --as NAME`, then `scans no-such`. kafka-rollout is done."
    assert [problem_of(words) for words in named(text)] == [
        "there is no command no-such",
        "there is no command no-such",
    ]
    assert [problem_of(words) for words in named("kafka-rollout check --no-such. Then `check --cluster NAME`.")] == [
        "it has no option --no-such",
        "",
    ]


def test_there_are_few_commands_to_learn() -> None:
    assert len(list(leaves(commands()))) <= LIMIT


def leaves(command: Any) -> Iterator[Any]:
    below = getattr(command, "commands", {})
    for name in below:
        yield from leaves(below[name])
    if not below:
        yield command
