"""Names and texts from outside are shown as they are and do nothing, in every output."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from kafka_rollout.base.outside_text import (
    NAME_LIMIT,
    TEXT_LIMIT,
    escape_invisible,
    escape_json,
    escape_markdown,
    quote_markdown,
)
from tests.outside_texts import outside_texts

texts = outside_texts()


@given(texts)
def test_what_is_shown_has_visible_characters_only_on_one_line(text: str) -> None:
    shown = escape_invisible(text)
    assert shown.isprintable()
    shown.encode()  # half of a surrogate pair would raise
    assert escape_invisible(shown) == shown


@given(
    st.text(
        alphabet=st.characters(
            codec="utf-8", categories=["L", "N", "P", "S"], exclude_characters="\u2800\u3164\u115f\u1160\uffa0"
        ),
        max_size=NAME_LIMIT,
    )
)
def test_names_in_any_script_stay_as_they_are(name: str) -> None:
    assert escape_invisible(name, limit=NAME_LIMIT) == name


@given(texts, st.integers(min_value=40, max_value=200), st.integers(min_value=1, max_value=100))
def test_a_long_text_is_cut_and_says_how_much_is_missing(text: str, limit: int, times: int) -> None:
    shown = escape_invisible(text * times, limit=limit)
    assert len(shown) <= limit
    assert shown == escape_invisible(text * times, limit=10**9) or shown.endswith("more characters)")


def test_a_name_of_a_megabyte_is_cut() -> None:
    assert escape_invisible("\u202e" * 1_000_000).endswith("\\u202e… (999,339 more characters)")
    assert len(escape_markdown("*" * 1_000_000)) <= 2 * TEXT_LIMIT


@pytest.mark.parametrize("preset", ["commonmark", "js-default"])
@given(text=texts)
@example(text="a*b*c _d_ e_f_g")
@example(text="`")
@example(text="12. first")
def test_markdown_shows_the_text_and_has_no_markup_of_it(preset: str, text: str) -> None:
    inline = _inline(preset, f"**{escape_markdown('subject')}** {escape_markdown(text)}")
    assert {token.type for token in inline} <= {"strong_open", "strong_close", "text", "text_special", "code_inline"}
    assert "".join(token.content for token in inline) == f"subject {escape_invisible(text).strip()}".rstrip()


@given(text=texts)
def test_a_text_at_the_beginning_of_a_line_begins_no_list_heading_or_code(text: str) -> None:
    shown = escape_markdown(text)
    tokens = MarkdownIt("js-default").parse(shown)
    assert [token.type for token in tokens] in ([], ["paragraph_open", "inline", "paragraph_close"])


@given(text=texts)
def test_an_address_is_never_left_as_text_that_a_renderer_makes_a_link_of(text: str) -> None:
    for token in _inline("js-default", f"see {escape_markdown(text)}"):
        if token.type in {"text", "text_special"}:
            assert "://" not in token.content
            assert "www." not in token.content.lower()


def test_a_long_word_is_searched_once() -> None:
    """A search that begins at each character again takes half a minute of processor time, this one milliseconds."""
    word = "a.b-c" * 20_000
    began = time.process_time()
    assert escape_markdown(word, limit=len(word)) == word
    assert time.process_time() - began < 5.0


@given(texts)
def test_a_quoted_name_is_code_and_nothing_else(text: str) -> None:
    shown = escape_invisible(text)
    inline = _inline("js-default", f"name {quote_markdown(text)} end")
    assert {token.type for token in inline} <= {"text", "code_inline"}
    if shown.strip():
        assert [token.content.strip() for token in inline if token.type == "code_inline"] == [shown.strip()]


@given(st.dictionaries(texts, texts, max_size=3))
def test_json_says_the_same_without_an_invisible_character(value: dict[str, str]) -> None:
    dumped = escape_json(json.dumps(value, indent=2, ensure_ascii=False))
    assert json.loads(dumped) == value
    assert dumped.replace("\n", "").isprintable()


def _inline(preset: str, markdown: str) -> list[Token]:
    tokens = MarkdownIt(preset).parse(markdown)
    assert [token.type for token in tokens if not token.type.startswith("paragraph")] == ["inline"]
    return tokens[1].children or []
