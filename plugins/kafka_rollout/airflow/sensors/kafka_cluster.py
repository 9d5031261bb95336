"""Sensors of a Kafka cluster, for everybody's DAGs.

A sensor only reads. A cluster that does not respond is waited for; a wrong argument, a missing right and a Connection
that cannot be used fail the task at once. Each sensor can be deferrable: then it waits in the triggerer and uses no
worker. Its XCom has `at` (epoch seconds) and `conditions`, each with `name` and `evidence`: what was seen.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.airflow.common.any_cluster import AnyCluster
from kafka_rollout.airflow.common.base import errors_for_airflow
from kafka_rollout.airflow.logs import OneLineLogs
from kafka_rollout.airflow.sensors.condition_trigger import PASSED, ConditionTrigger, check_once, found_by
from kafka_rollout.base.errors import TransientError, UserError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.report.conditions import ClusterCondition, ConditionKind

PUBLIC = ("KafkaClusterHealthySensor", "KafkaFeatureLevelSensor", "KafkaMetadataVersionSensor")


class ClusterSensor(OneLineLogs, BaseSensorOperator):
    """Base of the sensors.

    `kafka_cluster_conn_id`: Connection of type *Kafka cluster*. `cluster`: instead, a name in the inventory, which has
    Connections, metrics agents and hosts. `deferrable`: by default `[operators] default_deferrable`. The other
    arguments are those of BaseSensorOperator, for example `poke_interval`, `timeout` (seconds) and `mode`.
    """

    template_fields: Sequence[str] = ("kafka_cluster_conn_id", "cluster")

    def __init__(
        self,
        *,
        kafka_cluster_conn_id: str | None = None,
        cluster: str | None = None,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kafka_cluster_conn_id = kafka_cluster_conn_id
        self.cluster = cluster
        by_default = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = by_default if deferrable is None else deferrable
        self.place()  # a wrong combination is an error of the DAG file

    def place(self) -> AnyCluster:
        """Return the cluster. Raises UserError as AnyCluster."""
        return AnyCluster.of(self.kafka_cluster_conn_id, self.cluster)

    @abstractmethod
    def condition(self) -> ClusterCondition:
        """Return what the sensor waits for."""

    def execute(self, context: Context) -> Any:
        if not self.deferrable:
            return super().execute(context)
        seen = self.poke(context)
        if seen.is_done:
            return seen.xcom_value
        trigger = ConditionTrigger(
            place=to_json(self.place()), condition=to_json(self.condition()), poke_interval=self.poke_interval
        )
        self.defer(trigger=trigger, method_name="resumed", timeout=timedelta(seconds=self.timeout))

    def resumed(self, context: Context, event: dict[str, Any]) -> Any:
        """Continue after the trigger."""
        if event["state"] != PASSED:
            raise AirflowFailException(event["message"])
        return event["found"]

    def poke(self, context: Context) -> PokeReturnValue:
        with errors_for_airflow():
            try:
                seen = check_once(self.place().open_to_read, self.condition())
            except TransientError as error:
                self.log.info("Waits for a response: %s", error)
                return PokeReturnValue(is_done=False)
        if seen.passes:
            self.log.info("Met: %s", ", ".join(one.name for one in seen.conditions))
        else:
            self.log.info("Waits for %s", seen.waits_for)
        return PokeReturnValue(is_done=seen.passes, xcom_value=found_by(seen) if seen.passes else None)


class KafkaClusterHealthySensor(ClusterSensor):
    """Wait until the cluster is healthy.

    Every broker is registered and not fenced, every node responds and has the newest metadata, and every replica is in
    sync with its leader. A query without a response and a missing right are not healthy.
    """

    def condition(self) -> ClusterCondition:
        return ClusterCondition(kind=ConditionKind.HEALTHY)


class KafkaFeatureLevelSensor(ClusterSensor):
    """Wait until every node reports that a feature is finalized at `level` or higher (KIP-584).

    `feature`: for example `metadata.version` or `group.version`.
    """

    template_fields: Sequence[str] = (*ClusterSensor.template_fields, "feature", "level")

    def __init__(self, *, level: int | str, feature: str = "metadata.version", **kwargs: Any) -> None:
        self.level = level
        self.feature = feature
        super().__init__(**kwargs)

    def condition(self) -> ClusterCondition:
        return ClusterCondition(kind=ConditionKind.FEATURE_LEVEL, feature=self.feature, level=_level(self.level))


class KafkaMetadataVersionSensor(ClusterSensor):
    """Wait until every node runs at one metadata.version, by its metric CurrentMetadataVersion.

    `level`: as `kafka-features.sh describe` shows it; by default the finalized one. `prometheus_url` and `jolokia_url`:
    of the metrics agents of every node, for example `http://{host}:7071/metrics` and `http://{host}:8778/jolokia`;
    `{host}` is the host of the node's own address, `{node_id}` its id. With `cluster` they are those of the inventory.
    Without an agent, and for a release before 3.6, which has no such metric, what the node reports by ApiVersions
    counts, and the evidence says so.
    """

    template_fields: Sequence[str] = (*ClusterSensor.template_fields, "level", "prometheus_url", "jolokia_url")

    def __init__(
        self,
        *,
        level: int | str | None = None,
        prometheus_url: str | None = None,
        jolokia_url: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.level = level
        self.prometheus_url = prometheus_url
        self.jolokia_url = jolokia_url
        super().__init__(**kwargs)

    def place(self) -> AnyCluster:
        return AnyCluster.of(
            self.kafka_cluster_conn_id,
            self.cluster,
            prometheus_url=self.prometheus_url,
            jolokia_url=self.jolokia_url,
        )

    def condition(self) -> ClusterCondition:
        level = None if self.level is None else _level(self.level)
        return ClusterCondition(kind=ConditionKind.METADATA_VERSION, level=level)


def _level(text: int | str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserError(
            f"A feature level is a number, not {text!r}.", remedy="Set it as `kafka-features.sh describe` shows it."
        ) from None
