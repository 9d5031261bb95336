"""A name that an application chose, in an approval and on the page: it shows as it is, and does nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Page, expect

from kafka_rollout.run.events import Approval, Begun, events_of
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.pages import console, sign_in, widen_the_panel
from tests.integration.harness.airflow.server import APPROVER, PrivateAirflow, Run

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.full, pytest.mark.timeout(1800)]

NAME = (
    "<img src=x onerror=document.title=1> [approve me](https://evil.example/a) ![i](https://evil.example/i.png) "
    "www.evil.example **bold** `code` \u202egnp.exe\u202c \x1b[31mred\nFORGED: no findings"
)
SHOWN = (
    "<img src=x onerror=document.title=1> [approve me](https://evil.example/a) ![i](https://evil.example/i.png) "
    "www.evil.example **bold** `code` \\u202egnp.exe\\u202c \\u001b[31mred\\nFORGED: no findings"
)


def test_a_hostile_name_is_text_in_an_approval_and_on_the_page(
    airflow: PrivateAirflow, make_cluster: MakeCluster, page: Page, tmp_path: Path
) -> None:
    cluster = make_cluster("4.3.1", name="hostile", layout="combined", size=1)
    producer = Producer({"bootstrap.servers": cluster.spec.bootstrap_servers, "transactional.id": NAME})
    producer.init_transactions(180)
    dag_id = airflow.add(cluster, dag="kafka_features")
    client = airflow.client()
    conf = {"action": "update", "downgrade": ["transaction.version:1"]}
    run_id = client.trigger(dag_id, conf)
    run = Run(airflow=airflow, cluster=cluster, dag_id=dag_id, run_id=run_id, client=client)
    run.wait_for_question("approve")

    fetched: list[str] = []
    page.on("request", lambda request: fetched.append(request.url))
    sign_in(page, airflow, APPROVER)
    page.goto(f"{airflow.server.url}/dags/{dag_id}/runs/{run_id}/tasks/approve/required_actions")
    expect(page.get_by_text("Change features of hostile: transaction.version 2 → 1?")).to_be_visible()
    widen_the_panel(page)
    finding = page.get_by_role("listitem").filter(has_text="PRODUCERS-MAY-RUN")
    expect(finding).to_contain_text(SHOWN)
    assert finding.locator("a, img, em").count() == 0
    assert page.locator("a[href*='evil.example'], img[src*='evil.example']").count() == 0
    page.screenshot(path=tmp_path / "hostile-approval.png")

    run.answer("approve", "Reject", "the name \u202elooks odd")
    assert run.wait_done() == "failed"
    (given,) = events_of(run.store.events(), Approval)
    (begun,) = events_of(run.store.events(), Begun)
    assert given.responder is not None
    assert (given.responder.channel, given.responder.user, begun.triggered_by) == ("airflow", APPROVER, "admin")
    assert "PRODUCERS-MAY-RUN" in given.text
    assert given.text_sha256 == hashlib.sha256(given.text.encode()).hexdigest()

    own = console(page, airflow, "hostile")
    expect(own.get_by_role("list", name="Events of the run")).to_contain_text("\\u202elooks odd")
    page.screenshot(path=tmp_path / "hostile-page.png")
    assert not [url for url in fetched if "evil.example" in url]
    assert page.title() != "1"
