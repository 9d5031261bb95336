"""The page of all clusters: who sees which rows, and its files."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.airflow.plugin import KafkaRolloutPlugin
from kafka_rollout.base.durations import iso
from kafka_rollout.console.fleet import COLUMNS
from tests.dags.pages.page_client import PREFIX, serve_page, sign_in
from tests.fleet_scenes import make_scenes

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("database")]
ROWS = f"{PREFIX}/fleet/rows"


@pytest.fixture
def scenes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(tmp_path / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(tmp_path / "home"))
    make_scenes(tmp_path)


def rows_of(found: Any) -> dict[str, dict[str, Any]]:
    return {row["cluster"]: row for row in found["rows"]}


def test_a_viewer_sees_every_cluster_and_the_same_rows_as_files(
    scenes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve_page(tmp_path, monkeypatch) as client:
        signed_in = sign_in(client)
        found = client.get(ROWS, headers=signed_in).json()
        assert list(rows_of(found)) == ["orders", "payments", "search", "archive", "ledger"]
        assert found["totals"] == {"all": 5, "needs-human": 1, "running": 2}
        orders, _, search, archive, _ = found["rows"]
        assert (orders["state"], orders["tone"], orders["release"]) == ("waiting for approval", "now", "3.9.1 → 4.3.1")
        assert (orders["why"], orders["since"] < iso(time.time() - 890)) == (
            '=HYPERLINK("http://evil")\\u202e<b>',
            True,
        )
        assert (orders["health"], orders["health_tone"]) == ("ok", "good")
        assert search["health"].startswith("node 2 did not respond; 2 partitions without a leader")
        assert (search["state"], search["health_tone"], search["is_open"]) == ("", "bad", False)
        assert (archive["release"], archive["health"], archive["health_tone"]) == ("unknown", "unknown", "soft")
        assert "manual__" not in str(found)
        query = {"show": "running", "text": "pay"}
        chosen = client.get(ROWS, params=query, headers=signed_in).json()
        table = client.get(f"{ROWS}.csv", params=query, headers=signed_in)
        lines = list(csv.reader(io.StringIO(table.text, newline="")))
        assert [line[0] for line in lines] == [COLUMNS[0].title, "payments"]
        assert (list(rows_of(chosen)), chosen["totals"]["all"]) == (["payments"], 5)
        assert table.headers["content-type"] == "text/csv; charset=utf-8"
        assert "kafka-clusters.csv" in table.headers["content-disposition"]
        document = client.get(f"{ROWS}.json", params=query, headers=signed_in).json()
        assert [(row["cluster"], row["releases"]) for row in document] == [("payments", {"4.3.1": 1, "3.9.1": 14})]
        assert client.get(ROWS, params={"show": "bad"}, headers=signed_in).status_code == 422


def test_a_user_without_the_right_to_a_dag_gets_neither_its_rows_nor_its_values(
    scenes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readable = "kafka_upgrade_orders kafka_downgrade_payments kafka_compatibility_scan_search"
    with serve_page(tmp_path, monkeypatch, dags=readable) as client:
        signed_in = sign_in(client)
        found = client.get(ROWS, headers=signed_in).json()
        rows = rows_of(found)
        assert (set(rows), found["totals"]["all"]) == ({"orders", "payments", "search"}, 3)
        hidden = rows["payments"]
        assert (hidden["is_open"], hidden["release"], hidden["state"]) == (False, "unknown", "unknown")
        assert rows["search"]["release"] == "unknown"
        for kind in ("csv", "json"):
            shown = client.get(f"{ROWS}.{kind}", headers=signed_in).text
            assert "orders" in shown
            assert not any(word in shown for word in ("ledger", "archive", "manual__p"))


def test_nothing_is_shown_without_a_session(scenes: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve_page(tmp_path, monkeypatch) as client:
        for path in ("fleet", "fleet/rows", "fleet/rows.csv", "fleet/rows.json", "static/fleet.js"):
            assert client.get(f"{PREFIX}/{path}").status_code == 401
        signed_in = sign_in(client)
        page = client.get(f"{PREFIX}/fleet", headers=signed_in)
        assert "default-src 'none'" in page.headers["content-security-policy"]
        for name in ("fleet.js", "fleet.css"):
            assert client.get(f"{PREFIX}/static/{name}", headers=signed_in).status_code == 200


def test_the_menu_has_the_page() -> None:
    (entry,) = [view for view in KafkaRolloutPlugin.external_views if view["url_route"] == "kafka-rollout-fleet"]
    assert (entry["href"], entry["destination"]) == ("/kafka-rollout/fleet", "nav")
