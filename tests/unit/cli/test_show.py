"""What the terminal shows of texts from outside."""

from __future__ import annotations

import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_rollout.base.outside_text import escape_invisible
from kafka_rollout.cli import show
from kafka_rollout.planning.findings.cluster_state import RF_ONE_TOPIC
from tests.outside_texts import HOSTILE, outside_texts


def printed(*parts: object, markup: bool = True) -> str:
    console = show.SafeConsole(file=io.StringIO(), force_terminal=True, width=20_000, highlight=False, emoji=False)
    for part in parts:
        console.print(part, soft_wrap=True, markup=markup)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@given(outside_texts())
def test_a_text_from_outside_styles_nothing_and_ends_no_style(text: str) -> None:
    shown = printed(f"[red]{show.as_text(text)}[/red] end")
    style, end = "\x1b[31m", "\x1b[0m"
    expected = re.sub(r"\\+$", lambda run: "\\u005c" * len(run[0]), escape_invisible(text))
    plain = shown.replace(style, "").replace(end, "")
    assert plain.replace("\\[", "[") == f"{expected} end\n".replace("\\[", "[")
    assert shown.endswith(" end\n")
    assert "\x1b" not in plain


@given(st.text(max_size=40))
def test_a_string_that_was_not_escaped_controls_no_terminal(text: str) -> None:
    shown = printed(text, markup=False)
    assert shown.replace("\n", "").isprintable()


@pytest.mark.parametrize("hostile", HOSTILE)
def test_findings_and_json_show_hostile_names(hostile: str, capsys: pytest.CaptureFixture[str]) -> None:
    finding = RF_ONE_TOPIC.found(f"topic {hostile}", hostile, "Wait.")
    show.print_findings((finding,))
    show.print_json({"groups": [hostile]})
    said = capsys.readouterr().out
    assert said.replace("\n", "").isprintable()
    assert json.loads(said[said.index("{\n") :]) == {"groups": [hostile]}
    assert str(finding).isprintable()
