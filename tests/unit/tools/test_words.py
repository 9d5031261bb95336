"""Which words are found, and where."""

from __future__ import annotations

import pytest

from tools.words import WORDS, texts_of


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
def test_words_are_found_in_comments_and_sentences_only(text: str, number: int) -> None:
    assert len(WORDS.findall(texts_of(text))) == number
