"""The plot of a run: the same picture for the same values, readable text, and the page's colours."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from kafka_rollout.report.page import pages as module
from kafka_rollout.report.page.pages import traffic_plot
from kafka_rollout.report.spans import NodeSpan
from kafka_rollout.run.traffic import TrafficSample
from tests.outside_texts import HOSTILE

COLOUR = r"#[0-9a-f]{6}\b"
START = 1_795_000_000.0
NAMES = ("broker-1 (1)", "pay$s$ (2)", *(name for name in HOSTILE if "\ud800" not in name))
SPANS = [
    NodeSpan(name=name, began_at=START + 10 * at, started_at=START + 10 * at + 4, ended_at=None if at else START + 8)
    for at, name in enumerate(NAMES)
]
SAMPLES = [
    TrafficSample(START + at, 1.0, 45, int(at == 7), 8.0, 20.0, 2.5 if at == 7 else 0.1, None, at % 5)
    for at in range(90)
]


def test_the_same_values_give_the_same_picture_without_a_date() -> None:
    drawn = traffic_plot(SAMPLES, SPANS)
    assert drawn == traffic_plot(SAMPLES, SPANS)
    assert drawn != traffic_plot(SAMPLES[:-1], SPANS)
    assert "metadata" not in drawn


def test_the_picture_has_text_an_alternative_text_and_only_the_colours_of_the_page() -> None:
    for alone in (False, True):
        drawn = traffic_plot(SAMPLES, SPANS, alone=alone)
        root = ElementTree.fromstring(drawn)  # noqa: S314 - drawn here
        assert root.get("role") == "img"
        described = root.findtext("{http://www.w3.org/2000/svg}desc", "")
        assert "4,050 records were acknowledged; failed requests and lost connections: 1." in described
        assert "2.5 s" in described
        assert "Most under-replicated partitions: unknown." in described
        texts = {one.text for one in root.iter("{http://www.w3.org/2000/svg}text")}
        assert {"broker-1 (1)", "pay$s$ (2)", "records/s", "not observed"} <= texts
        assert any("UTC" in text for text in texts)
        assert set(re.findall(COLOUR, drawn)) == (set(re.findall(COLOUR, module._VARIABLES)) if alone else set())
        assert not any(word in drawn for word in ("<script", "\u202e", "<image", "url(http", "font-family: DejaVu"))


def test_a_run_without_traffic_has_its_node_steps_and_one_without_both_has_no_picture() -> None:
    drawn = traffic_plot([], SPANS[:1])
    assert "broker-1 (1)" in drawn
    assert "Latency" not in drawn
    assert traffic_plot([], []) == ""
    assert traffic_plot([], [NodeSpan(name="b1", began_at=START, started_at=None, ended_at=None)], now=START) == ""


def test_many_nodes_have_one_row() -> None:
    many = [NodeSpan(name=f"b{at}", began_at=START + at, started_at=None, ended_at=None) for at in range(200)]
    drawn = traffic_plot([], many)
    assert "200 nodes" in drawn
    assert len(drawn) < 200_000


def test_without_matplotlib_there_is_no_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "can_plot", lambda: False)
    assert traffic_plot(SAMPLES, SPANS) == ""
