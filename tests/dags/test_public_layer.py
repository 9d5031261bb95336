"""The sensors and operators for everybody's DAGs, on a fake cluster; real ones are in tests/integration/adapters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import TransientError, UserError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.coordinator_logs.spark.submit import with_settings_of_user
from kafka_rollout.observation.cluster_ports import ClusterPorts
from kafka_rollout.releases.documents.catalogue import get_catalogue
from tests.dags.conftest import empty_scan
from tests.fakes.cluster import R391, R431, FakeCluster
from tests.fakes.ports import fake_ports
from tests.paths import ROOT

pytestmark = [pytest.mark.airflow, pytest.mark.usefixtures("database")]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """What the Connection `kc` leads to."""
    from kafka_rollout.airflow.hooks.kafka_cluster import KafkaClusterHook

    world = FakeCluster(R391)

    @contextmanager
    def open_fake(self: KafkaClusterHook, **options: Any) -> Iterator[ClusterPorts]:
        assert self.kafka_cluster_conn_id == "kc"
        yield fake_ports(world, tmp_path)

    async def nothing(_: object) -> None:
        return None

    monkeypatch.setattr(KafkaClusterHook, "open_to_read", open_fake)
    monkeypatch.setattr(KafkaClusterHook, "aread", nothing)
    return world


def healthy(**options: Any) -> Any:
    from kafka_rollout.airflow.sensors.kafka_cluster import KafkaClusterHealthySensor

    return KafkaClusterHealthySensor(task_id="healthy", kafka_cluster_conn_id="kc", **options)


def level(**options: Any) -> Any:
    from kafka_rollout.airflow.sensors.kafka_cluster import KafkaFeatureLevelSensor

    return KafkaFeatureLevelSensor(task_id="level", kafka_cluster_conn_id="kc", **options)


def version(**options: Any) -> Any:
    from kafka_rollout.airflow.sensors.kafka_cluster import KafkaMetadataVersionSensor

    return KafkaMetadataVersionSensor(task_id="version", kafka_cluster_conn_id="kc", **options)


def test_a_healthy_cluster_is_seen_and_one_with_a_node_down_is_waited_for(world: FakeCluster) -> None:
    seen = healthy().poke({})
    assert seen.is_done
    assert [one["name"] for one in seen.xcom_value["conditions"]] == [
        "every query answered",
        "every node serves",
        "every node is caught up",
        "all replicas are in sync",
    ]
    world.stop(2)
    assert not healthy().poke({}).is_done


def test_a_level_is_reached_by_a_higher_one_too(world: FakeCluster) -> None:
    assert level(level=20).poke({}).is_done
    assert level(level="21").poke({}).is_done
    assert not level(level=22).poke({}).is_done
    assert not level(feature="group.version", level=1).poke({}).is_done


def test_the_metadata_version_is_exactly_the_one_that_is_wanted_or_the_finalized_one(world: FakeCluster) -> None:
    assert version().poke({}).is_done
    assert version(level=21).poke({}).is_done
    assert not version(level=20).poke({}).is_done


def test_a_cluster_without_a_response_is_waited_for_and_a_refusal_fails_at_once(
    world: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from kafka_rollout.airflow.hooks.kafka_cluster import KafkaClusterHook

    def silent(*_: object, **_options: object) -> None:
        raise TransientError("No broker responds.", remedy="")

    monkeypatch.setattr(KafkaClusterHook, "open_to_read", silent)
    assert not healthy().poke({}).is_done

    def wrong(*_: object, **_options: object) -> None:
        raise UserError("The Connection kc names no broker.", remedy="Name one.")

    monkeypatch.setattr(KafkaClusterHook, "open_to_read", wrong)
    with pytest.raises(AirflowFailException, match="names no broker"):
        healthy().poke({})


def test_a_deferrable_sensor_waits_in_the_triggerer_and_leaves_what_was_seen(world: FakeCluster) -> None:
    from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

    from kafka_rollout.airflow.sensors.condition_trigger import ConditionTrigger

    assert healthy(deferrable=True).execute({})["conditions"]
    waits = level(level=22, deferrable=True, poke_interval=0.01)
    with pytest.raises(TaskDeferred) as deferred:
        waits.execute({})
    path, arguments = deferred.value.trigger.serialize()
    assert path == f"{ConditionTrigger.__module__}.{ConditionTrigger.__name__}"
    trigger = ConditionTrigger(**arguments)

    async def run() -> dict[str, Any]:
        async def raise_level() -> None:
            await asyncio.sleep(0.1)
            world.raise_levels({"metadata.version": 22})

        raising = asyncio.create_task(raise_level())
        async for event in trigger.run():
            await raising
            return dict(event.payload)
        raise AssertionError

    event = asyncio.run(asyncio.wait_for(run(), 60))
    assert event["state"] == "passed"
    assert "22" in waits.resumed({}, event)["conditions"][0]["evidence"]
    with pytest.raises(AirflowFailException, match="no right"):
        waits.resumed({}, {"state": "error", "message": "no right"})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"cluster": "orders", "kafka_cluster_conn_id": "kc"}, "either by kafka_cluster_conn_id or by cluster"),
        ({"cluster": "orders", "prometheus_url": "http://{host}:7071"}, "prometheus_url belongs to"),
    ],
)
def test_a_wrong_combination_is_an_error_of_the_dag_file(options: dict[str, str], said: str) -> None:
    from kafka_rollout.airflow.sensors.kafka_cluster import KafkaMetadataVersionSensor

    with pytest.raises(UserError, match=said):
        KafkaMetadataVersionSensor(task_id="version", **options)


@pytest.mark.parametrize("wrong", ["high", -1])
def test_a_level_that_is_none_fails_the_task(world: FakeCluster, wrong: object) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match="A feature level is a number"):
        level(level=wrong).poke({})


def test_a_release_check_leaves_its_document_and_fails_as_it_is_told(world: FakeCluster) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from kafka_rollout.airflow.operators.kafka_cluster import KafkaReleaseCheckOperator

    def check(fails_on: str) -> Any:
        operator = KafkaReleaseCheckOperator(
            task_id="check", kafka_cluster_conn_id="kc", release=str(R431), fails_on=fails_on
        )
        return operator.execute({})

    document = check("never")
    assert (document["change"], document["target"]) == ("upgrade", str(R431))
    assert document["totals"]["blocker"] == 0
    world.stop(2)
    assert check("never")["totals"]["blocker"] > 0
    with pytest.raises(AirflowFailException, match="is blocked"):
        check("blocker")
    with pytest.raises(UserError, match="fails_on is one of"):
        check("warning")


def test_features_are_read_and_a_request_is_validated_without_a_change(world: FakeCluster) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    from kafka_rollout.airflow.operators.kafka_cluster import KafkaFeaturesOperator

    def features(**levels: int) -> Any:
        wanted = {name.replace("_", "."): one for name, one in levels.items()}
        return KafkaFeaturesOperator(task_id="features", kafka_cluster_conn_id="kc", levels=wanted).execute({})

    assert features()["finalized"]["metadata.version"] == 21
    assert features(metadata_version=21)["finalized"]["metadata.version"] == 21
    with pytest.raises(AirflowFailException, match=r"metadata\.version"):
        features(metadata_version=99)
    assert features()["finalized"]["metadata.version"] == 21


def scan_operator(**options: Any) -> Any:
    from kafka_rollout.airflow.operators.kafka_coordinator_log_scan import KafkaCoordinatorLogScanOperator

    return KafkaCoordinatorLogScanOperator(task_id="scan", kafka_cluster_conn_id="kc", **options)


def test_a_scan_fails_unless_each_needed_release_is_proved_to_load(tmp_path: Path) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    result = empty_scan(get_catalogue(), [("__consumer_offsets", 0)])
    assert scan_operator(must_load=["4.3.1"]).keep({}, result, tmp_path)["verdicts"]["4.3.1"] == "loads"
    only = replace(result, verdicts=tuple(one for one in result.verdicts if str(one.release) != "4.3.1"))
    with pytest.raises(AirflowFailException, match=r"not proved that 4\.3\.1 \(unknown\) can load"):
        scan_operator(must_load=["4.3.1"]).keep({}, only, tmp_path)


def test_the_output_of_a_scan_is_whole(tmp_path: Path) -> None:
    result = empty_scan(get_catalogue(), [("__consumer_offsets", 0)])
    scratch = tmp_path / "scratch"
    (scratch / "parquet" / "verdicts").mkdir(parents=True)
    (scratch / "parquet" / "verdicts" / "part-0.parquet").write_bytes(b"a table")
    (scratch / "scan.json").write_text(json.dumps(to_json(result)))
    output = scan_operator(output_path=f"file://{tmp_path / 'out'}").keep({}, result, scratch)["output"]
    assert output == f"file://{tmp_path / 'out'}"
    assert (tmp_path / "out" / "verdicts" / "part-0.parquet").read_bytes() == b"a table"
    assert json.loads((tmp_path / "out" / "scan.json").read_text()) == to_json(result)
    assert "<html" in (tmp_path / "out" / "scan.html").read_text()


def test_the_users_conf_wins_except_over_what_protects() -> None:
    ours = {"spark.ui.enabled": "false", "spark.authenticate": "true", "spark.driver.extraJavaOptions": "-Dours=1"}
    of_user = {"spark.ui.enabled": "true", "spark.cores.max": 2, "spark.driver.extraJavaOptions": "-Dmine=1"}
    assert with_settings_of_user(ours, of_user) == {
        "spark.ui.enabled": "true",
        "spark.authenticate": "true",
        "spark.cores.max": "2",
        "spark.driver.extraJavaOptions": "-Dours=1 -Dmine=1",
    }
    with pytest.raises(UserError, match=r"Remove spark\.authenticate from conf"):
        with_settings_of_user(ours, {"spark.authenticate": "false"})


def test_the_example_is_a_dag_of_what_the_provider_lists() -> None:
    from airflow.dag_processing.dagbag import DagBag

    from kafka_rollout.airflow.provider import get_provider_info

    bag = DagBag(ROOT / "plugins" / "kafka_rollout" / "airflow" / "example_dags")
    assert bag.import_errors == {}
    (dag,) = bag.dags.values()
    listed = {
        module
        for kind in ("operators", "sensors")
        for entry in get_provider_info()[kind]
        for module in entry["python-modules"]
    }
    assert {type(task).__module__ for task in dag.tasks} == listed
