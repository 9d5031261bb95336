"""Templates of notifications see `alert` alone, and names that clients choose are rendered once."""

from __future__ import annotations

import pytest

from kafka_rollout.base.system.alert_texts import render_alert

ALERT = {"subject": "orders: {{ conn.kafka.password }} {% for x in y %}", "sentences": ["one", "two"], "body": "<b>"}


def test_every_text_of_a_value_is_rendered_once() -> None:
    template = {"text": "{{ alert.subject }}", "list": ["{{ alert.sentences | join(' ') }}", 1, None], "on": True}
    assert render_alert(template, ALERT) == {"text": ALERT["subject"], "list": ["one two", 1, None], "on": True}
    assert render_alert("<pre>{{ alert.body | e }}</pre>", ALERT) == "<pre>&lt;b&gt;</pre>"


@pytest.mark.parametrize(
    "template",
    [
        "{{ conn.kafka_hosts.password }}",
        "{{ var.value.secret }}",
        "{{ ti.xcom_pull() }}",
        "{{ macros.os }}",
        "{{ alert.absent }}",
        "{{ ''.__class__.__mro__ }}",
        "{{ alert.__class__.__init__.__globals__ }}",
        "{{ self._TemplateReference__context }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{{ lipsum.__globals__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'x' as y %}",
        "{{ alert.subject.format_map(1) }}",
        "{{ alert.update({'x': 1}) }}",
        "{{ 1 / 0 }}",
        "{{ unclosed",
        "{% for _ in range(99999) %}{{ alert.subject }}{% endfor %}",
    ],
)
def test_nothing_else_is_within_reach(template: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be rendered|is longer than"):
        render_alert(template, ALERT)
