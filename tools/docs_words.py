"""`python -m tools.docs_words`: counts the words that are written by hand in the documentation, page by page.

A word is a run of characters without a space that contains a letter or a digit: code blocks, tables, links and
headings count, lines and marks of tables do not. Counted are all pages for readers: README, CONTRIBUTING, SECURITY, the
pages of docs/ and docs/decisions/, and the README of bench/, consumer/ and data_source/. Parts that `make
reference` writes from the code do not count, and CHANGELOG.md is a history. tests/architecture/test_docs.py checks
`LIMIT`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 20_000
# Folders by name: a hidden one, such as .pytest_cache, also has a README.
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md", "docs/decisions/*.md", "[bcd]*/README.md")
_GENERATED = re.compile(r"<!-- from the code: .*?<!-- end -->", re.DOTALL)


def words_by_page(root: Path = ROOT) -> Mapping[str, int]:
    """Return path of the page below the checkout → words that are written by hand."""
    pages = sorted({path for pattern in PAGES for path in root.glob(pattern)})
    return {path.relative_to(root).as_posix(): count_words(path.read_text(encoding="utf-8")) for path in pages}


def count_words(text: str) -> int:
    return sum(any(map(str.isalnum, word)) for word in _GENERATED.sub("", text).split())


if __name__ == "__main__":
    counted = words_by_page()
    for page, words in sorted(counted.items(), key=lambda one: -one[1]):
        print(f"{words:7,}  {page}")
    print(f"{sum(counted.values()):7,}  in all, of at most {LIMIT:,}")
