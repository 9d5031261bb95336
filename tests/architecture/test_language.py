"""Words that no text of the project uses; each of them has a plain replacement."""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from collections import Counter
from pathlib import Path

import pytest

from tests.paths import ROOT

# Joined so that this file does not contain the words.
_WORDS = (
    "a~new", "a~miss", "who~ever", "like~wise", "mean~while", "for ~ever", "me~nd(?:s|ed|ing)?", "fore~told",
    "nobody ~knows", "some~body", "(?:is|are|was|were|be) ~told", "at ~hand", "goes ~round", "way ~back",
    "a ~look(?!-?up)",
)  # fmt: skip
# Not as the name of an attribute or as a whole string: that is a key.
BANNED = re.compile(
    r"""(?<![\w.])(?!(?<=["'`])\w+["'`])(?:"""
    + "|".join(word.replace("~", "").replace(" ", r"\s+") for word in _WORDS)
    + r")\b",
    re.IGNORECASE,
)
PYTHON = ("plugins", "spark_jobs", "dags", "tools", "bench", "tests")
PROSE = ("README.md", "CHANGELOG.md", "docs", "include", "bench", "plugins")
PROSE_ENDINGS = {".md", ".j2", ".html", ".js", ".css", ".yaml"}


def texts_of(source: str) -> str:
    """Return the comments, docstrings and strings of Python code, one after the other."""
    parts = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            parts.append(token.string.lstrip("# "))
        elif token.type == tokenize.STRING:
            parts.append(token.string)
    return "\n".join(parts)


def banned_words(path: Path) -> list[str]:
    text = path.read_text()
    words = BANNED.findall(texts_of(text) if path.suffix == ".py" else text)
    return [f"{path.relative_to(ROOT)}: {' '.join(word.lower().split())}" for word in words]


def folder_of(name: str) -> str:
    """Return the package of `plugins/kafka_rollout`, elsewhere at most two folders."""
    folders = name.split("/")[:-1]
    return "/".join(folders[: 3 if name.startswith("plugins/") else 2]) or name


def find_banned_words() -> dict[str, Counter[str]]:
    """Return folder → "file: banned word" → number of times."""
    names = subprocess.run(
        ["git", "ls-files", "--", *PYTHON, *PROSE], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    words: dict[str, Counter[str]] = {}
    for name in names:
        wanted = PYTHON if name.endswith(".py") else PROSE if Path(name).suffix in PROSE_ENDINGS else ()
        if name.startswith(wanted) and (ROOT / name).is_file():
            words.setdefault(folder_of(name), Counter()).update(banned_words(ROOT / name))
    return words


def test_no_text_contains_a_banned_word() -> None:
    words = find_banned_words()
    assert len(words) > 30
    assert {folder: dict(names) for folder, names in words.items() if names} == {}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("# begin a" + "new", 1),
        ('"""It is a' + "t\n    hand, some" + 'body said."""', 2),
        ('x = "the run was t' + 'old"', 1),
        ('x = "fore' + 'told"  # a look-up, the recommended one', 0),
        ("def mend_it() -> None: ...", 0),
    ],
)
def test_banned_words_are_found_in_comments_and_sentences_only(text: str, number: int) -> None:
    assert len(BANNED.findall(texts_of(text))) == number
