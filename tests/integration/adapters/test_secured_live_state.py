"""*Kafka now* of a secured cluster by Airflow's API server: with its Connections, wrong ones, and none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from kafka_rollout.base.system.files import write_whole
from kafka_rollout.clusters.inventory import dump_cluster
from tests.integration.conftest import MakeCluster
from tests.integration.harness.airflow.pages import open_console, sign_in
from tests.integration.harness.airflow.server import APPROVER, PrivateAirflow, wait_for
from tests.integration.harness.security.secured import READER, SecuredCluster

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.full, pytest.mark.timeout(900)]


def test_the_page_reads_a_secured_cluster_by_its_connections_and_names_what_is_wrong_with_them(
    airflow: PrivateAirflow, make_cluster: MakeCluster, page: Page, tmp_path: Path
) -> None:
    secured = SecuredCluster.create(make_cluster, "4.3.1", tmp_path / "files", name="sealed", layout="combined", size=1)
    write_whole(airflow.clusters / "sealed.yaml", dump_cluster(secured.spec).encode(), mode=0o644)
    client = airflow.client()
    bodies = secured.connections(READER)

    def seen(is_it: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        def ask() -> dict[str, Any] | None:
            found: dict[str, Any] = client.call("GET", "/kafka-rollout/kafka?cluster=sealed")
            assert not any(password in str(found) for password in secured.passwords.values())
            return found if is_it(found) else None

        found: dict[str, Any] = wait_for(ask, timeout_s=120, every_s=1.0, said="the state of the cluster")
        return found

    missing = seen(lambda found: found["problem"])
    assert missing["state"] is None
    assert "cannot find the Connection secured_brokers or secured_controllers" in missing["problem"]
    sign_in(page, airflow, APPROVER)
    found = open_console(page, airflow, "sealed").get_by_role("region", name="Kafka: sealed")
    expect(found).to_contain_text("The state is unknown: The API server of Airflow cannot find the Connection")

    for body in bodies.values():
        client.call("POST", "/api/v2/connections", json=body)
    state = seen(lambda found: found["state"])["state"]
    assert {name: counted["number"] for name, counted in state["counts"].items()} == dict.fromkeys(state["counts"], 0)
    assert (state["problems"], state["serves"], state["controller"]) == ([], True, secured.spec.nodes[0].node_id)
    expect(found).to_contain_text("No client is affected: every partition has a leader and its min ISR.")

    wrong = {**bodies["brokers"], "password": "wrong-and-secret"}
    client.call("PATCH", "/api/v2/connections/secured_brokers", json=wrong)
    state = seen(lambda found: found["state"]["problems"])["state"]
    numbers = {name: counted["number"] for name, counted in state["counts"].items()}
    assert {numbers[name] for name in numbers if "partitions" in name or "fenced" in name} == {None}
    assert (state["partitions"], state["serves"], state["levels"]) == (None, None, {})
    (problem,) = state["problems"]
    assert f"refused the authentication of user {READER}" in problem
    assert "Check the user name and the password" in problem
    expect(found).to_contain_text("unknown under-replicated partitions")
    expect(found).to_contain_text(f"refused the authentication of user {READER}")
    assert "wrong-and-secret" not in page.content()
    page.screenshot(path=tmp_path / "wrong-password.png")

    client.call("DELETE", "/api/v2/connections/secured_controllers")
    removed = seen(lambda found: "cannot find" in found["problem"])
    assert removed["state"]["counts"] == state["counts"], "the last state stays, with its time"
    expect(found).to_contain_text("There is no newer state: The API server of Airflow cannot find the Connection")
    for name in ("brokers", "traffic"):
        client.call("DELETE", f"/api/v2/connections/secured_{name}")
    (airflow.clusters / "sealed.yaml").unlink()
