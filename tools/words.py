"""Words that no text of the project should use, because each has a plain replacement; `make lint` lists them."""

from __future__ import annotations

import io
import re
import subprocess
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Joined so that this file does not contain the words.
_WORDS = (
    "a~new", "a~miss", "who~ever", "like~wise", "mean~while", "for ~ever", "me~nd(?:s|ed|ing)?", "fore~told",
    "nobody ~knows", "some~body", "(?:is|are|was|were|be) ~told", "at ~hand", "goes ~round", "way ~back",
    "a ~look(?!-?up)",
)  # fmt: skip
# Not as the name of an attribute or as a whole string: that is a key.
WORDS = re.compile(
    r"""(?<![\w.])(?!(?<=["'`])\w+["'`])(?:"""
    + "|".join(word.replace("~", "").replace(" ", r"\s+") for word in _WORDS)
    + r")\b",
    re.IGNORECASE,
)
PYTHON = ("plugins", "spark_jobs", "data_source", "consumer", "dags", "tools", "bench", "tests")
PROSE = ("README.md", "CHANGELOG.md", "docs", "include", "bench", "data_source", "plugins")
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


def words_of(path: Path) -> list[str]:
    text = path.read_text()
    words = WORDS.findall(texts_of(text) if path.suffix == ".py" else text)
    return [f"{path.relative_to(ROOT)}: {' '.join(word.lower().split())}" for word in words]


def folder_of(name: str) -> str:
    """Return the package of `plugins/kafka_rollout`, elsewhere at most two folders."""
    folders = name.split("/")[:-1]
    return "/".join(folders[: 3 if name.startswith("plugins/") else 2]) or name


def find_words() -> dict[str, Counter[str]]:
    """Return folder → "file: word" → number of times."""
    names = subprocess.run(
        ["git", "ls-files", "--", *PYTHON, *PROSE], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    words: dict[str, Counter[str]] = {}
    for name in names:
        wanted = PYTHON if name.endswith(".py") else PROSE if Path(name).suffix in PROSE_ENDINGS else ()
        if name.startswith(wanted) and (ROOT / name).is_file():
            words.setdefault(folder_of(name), Counter()).update(words_of(ROOT / name))
    return words


def main() -> None:
    """Print each word with its file. It is a warning: `make lint` does not fail."""
    for names in find_words().values():
        for found, times in sorted(names.items()):
            print(f"warning: {found}" + (f" ({times} times)" if times > 1 else ""))


if __name__ == "__main__":
    main()
