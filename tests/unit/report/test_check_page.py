"""The page of a check: complete, escaped, and the document follows the published schema."""

from __future__ import annotations

import json

import jsonschema
import pytest

from kafka_rollout.base.findings import BLOCKER, WARNING, Check, Examined, FindingCode, Need
from kafka_rollout.report.check_report import CheckEntry, ClusterCheckReport
from kafka_rollout.report.page.pages import render_check
from tests.outside_texts import HOSTILE
from tests.paths import ROOT

ALONE = FindingCode("ALONE", (BLOCKER, WARNING), "A topic has one replica.", "Raise the replication factor.")
TOPICS = Check("topics", "Topics", "upgrade.md", (ALONE,), needs=(Need.METRICS,), examines=Examined.TOPICS)
QUORUM = Check("quorum", "Quorum", "upgrade.md", (), needs=())
HOSTS = Check("hosts", "Hosts", "upgrade.md", (), needs=(Need.JAVA,))


@pytest.fixture
def report() -> ClusterCheckReport:
    found = TOPICS.ran(ALONE.found(f"topic {name}", f"{name} has one replica.") for name in ("orders", *HOSTILE))
    unknown = {Need.JAVA: "The Java version of node 1 is unknown."}
    return ClusterCheckReport(
        cluster="orders",
        bootstrap_servers="b:9092",
        cluster_id="<b>id</b>",
        change="upgrade",
        path=("3.9.1", "4.3.1"),
        target="4.3.1",
        nodes="1 broker",
        contents="13 topics",
        checked_at=1_700_000_000.0,
        seconds=2.0,
        entries=tuple(
            CheckEntry.of(checked, unknown, examined="13 topics", seconds=0.1)
            for checked in (QUORUM.ran(), HOSTS.ran(), found)
        ),
        left_out=3,
        complete_with="Add metrics.",
    )


def test_the_page_shows_blockers_first_and_every_object(report: ClusterCheckReport) -> None:
    page = render_check(report)
    assert page.index('id="topics"') < page.index('id="hosts"') < page.index("All checks")
    assert 'id="quorum"' not in page  # only in the list of all checks
    for text in ("Check of the upgrade 3.9.1 → 4.3.1", "is blocked", "Raise the replication factor.", "3 checks were"):
        assert text in page
    assert f"All {1 + len(HOSTILE)} objects" in page
    assert "The Java version of node 1 is unknown." in page


def test_nothing_from_outside_is_markup(report: ClusterCheckReport) -> None:
    page = render_check(report)
    for forbidden in ("<script", "<b>id</b>", "\u202e", "\x1b", 'src="'):
        assert forbidden not in page
    assert "&lt;script&gt;" in page


def test_the_document_follows_the_published_schema(report: ClusterCheckReport) -> None:
    schema = json.loads((ROOT / "docs" / "check.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    document = json.loads(json.dumps(report.document()))
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document, "format": 2}, schema)
