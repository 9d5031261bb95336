"""Operators on a Kafka cluster, for everybody's DAGs. They only read."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from kafka_rollout.airflow.common.any_cluster import AnyCluster
from kafka_rollout.airflow.common.base import errors_for_airflow
from kafka_rollout.airflow.logs import OneLineLogs
from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.features.requests import refused_by_controller
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import Release

PUBLIC = ("KafkaReleaseCheckOperator", "KafkaFeaturesOperator")
FAILS_ON = ("blocker", "unknown", "never")


class ClusterOperator(OneLineLogs, BaseOperator):
    """Base of the operators.

    `kafka_cluster_conn_id`: Connection of type *Kafka cluster*. `cluster`: instead, a name in the inventory, which has
    Connections, metrics agents and hosts.
    """

    template_fields: Sequence[str] = ("kafka_cluster_conn_id", "cluster")

    def __init__(self, *, kafka_cluster_conn_id: str | None = None, cluster: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.kafka_cluster_conn_id = kafka_cluster_conn_id
        self.cluster = cluster
        self.place()  # a wrong combination is an error of the DAG file

    def place(self) -> AnyCluster:
        """Return the cluster. Raises UserError as AnyCluster."""
        return AnyCluster.of(self.kafka_cluster_conn_id, self.cluster)


class KafkaReleaseCheckOperator(ClusterOperator):
    """Check whether a running cluster can be upgraded or downgraded to `release`, as `kafka-rollout check` does.

    `running_release`: the patch release that runs now, which brokers do not report. `prometheus_url`, `jolokia_url`:
    of the metrics agents of every node, with `{host}` and `{node_id}` in their places; they make more checks known.
    `skip`: ids of checks to leave out. `fails_on`: the task fails if a check found a `blocker`; by default also if one
    could not exclude a blocker, `unknown`; or `never`.

    XCom: the document of docs/check.schema.json. The log has every check with its findings and remedies.
    """

    template_fields: Sequence[str] = (
        *ClusterOperator.template_fields,
        "release",
        "running_release",
        "prometheus_url",
        "jolokia_url",
        "skip",
    )

    def __init__(
        self,
        *,
        release: str,
        running_release: str | None = None,
        prometheus_url: str | None = None,
        jolokia_url: str | None = None,
        skip: Collection[str] = (),
        fails_on: str = "unknown",
        **kwargs: Any,
    ) -> None:
        self.release = release
        self.running_release = running_release
        self.prometheus_url = prometheus_url
        self.jolokia_url = jolokia_url
        self.skip = list(skip)
        self.fails_on = fails_on
        super().__init__(**kwargs)
        if fails_on not in FAILS_ON:
            raise UserError(f"fails_on is one of {', '.join(FAILS_ON)}, not {fails_on!r}.", remedy="Correct it.")

    def place(self) -> AnyCluster:
        return AnyCluster.of(
            self.kafka_cluster_conn_id,
            self.cluster,
            prometheus_url=self.prometheus_url,
            jolokia_url=self.jolokia_url,
            running_release=self.running_release,
        )

    def execute(self, context: Context) -> Any:
        from kafka_rollout.report.check_registry import check_release, choose_checks

        with errors_for_airflow():
            chosen = choose_checks(skip=self.skip)
            target = get_catalogue().get(Release.parse(self.release)).release
            with self.place().open_to_read() as ports:
                report = check_release(
                    ports,
                    target,
                    chosen,
                    complete_with="A dry run of the change reads more, for example the metadata logs.",
                    on_progress=self.log.info,
                )
        for entry in report.by_severity:
            self.log.info("%s: %s %s", entry.result.value, entry.check.id, entry.check.title)
            for group in entry.groups:
                self.log.info("%s: %s %s %s", group.code, group.subjects, group.sentence, group.remedy)
        self.log.info("%s. %s", report.totals_text, report.sentence)
        fails = report.has_blockers if self.fails_on == "blocker" else report.exit_code != 0
        if fails and self.fails_on != "never":
            raise AirflowFailException(report.sentence)
        return to_json(report.document())


class KafkaFeaturesOperator(ClusterOperator):
    """Read the feature levels: what each node supports, and what is finalized (KIP-584).

    `levels`: feature → level that a later task will request. The active controller validates this request
    (UpdateFeatures with validateOnly, nothing changes), and the task fails with its reason if it refuses. To lower a
    level is part of it. XCom: `finalized`, `features` with the range of every node, and `nodes`, as
    `kafka-rollout features describe --json` prints them.
    """

    template_fields: Sequence[str] = (*ClusterOperator.template_fields, "levels")

    def __init__(self, *, levels: Mapping[str, int] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.levels = dict(levels or {})

    def execute(self, context: Context) -> Any:
        from kafka_rollout.feature_updates.update import observe_features
        from kafka_rollout.report.feature_levels import describe_features

        with errors_for_airflow(), self.place().open_to_read() as ports:
            state = observe_features(ports)
            wanted = {feature: int(level) for feature, level in self.levels.items()}
            lacking = state.finalized.lacking(wanted)
            refused = [
                refused_by_controller(state, one.feature, lacking[one.feature], one.error, one.message)
                for one in (ports.admin.update_features(lacking, validate_only=True) if lacking else ())
                if not one.accepted
            ]
            if refused:
                raise RefusedError(
                    " ".join(one.sentence for one in refused),
                    remedy=" ".join(dict.fromkeys(one.remedy for one in refused if one.remedy)),
                )
            return to_json(describe_features(ports.cluster, state))
