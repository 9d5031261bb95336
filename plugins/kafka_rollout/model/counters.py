"""Counters and error rates of Kafka itself that a gate checks, and how an agent exports them.

A broker that could not apply a part of the metadata (an ACL, a quota, a dynamic setting) logs an error, counts it and
goes on: it stays registered, in sync and caught up (`SharedServer.metadataPublishingFaultHandler`, KIP-859). All
releases from 3.3 to 4.4 have these counters. They start at 0 with the process.

The coordinators of groups and share groups in CoordinatorRuntime (4.x, and earlier previews) count the partitions that
they lead by state. No client changes these counts, so they prove more than a log (`gates/coordinators.py`).

The rates of remote copies and fetches (KIP-405) exist from 3.6.0 on, in a process with tiered storage only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_rollout.base.internal_topics import GROUPS_TOPIC, SHARE_TOPIC
from kafka_rollout.model.topology import Role
from kafka_rollout.releases.facts import Release

METADATA_APPLY_ERRORS = "metadata_apply_errors"
METADATA_LOAD_ERRORS = "metadata_load_errors"
METADATA_ERRORS = "metadata_errors"
OFFLINE_LOG_DIRECTORIES = "offline_log_directories"
FENCED_BROKERS = "fenced_brokers"
ACTIVE_BROKERS = "active_brokers"
OFFLINE_PARTITIONS = "offline_partitions"
PREFERRED_REPLICA_IMBALANCE = "preferred_replica_imbalance"
REMOTE_COPY_ERRORS = "remote_copy_errors"
REMOTE_FETCH_ERRORS = "remote_fetch_errors"

GROUPS_ACTIVE, GROUPS_LOADING, GROUPS_FAILED = (
    f"group_partitions_{state}" for state in ("active", "loading", "failed")
)
SHARES_ACTIVE, SHARES_LOADING, SHARES_FAILED = (
    f"share_partitions_{state}" for state in ("active", "loading", "failed")
)

METADATA_ERROR_COUNTERS = (METADATA_APPLY_ERRORS, METADATA_LOAD_ERRORS, METADATA_ERRORS)
REMOTE_ERROR_RATES = (REMOTE_COPY_ERRORS, REMOTE_FETCH_ERRORS)

# Errors per second. A rate and not a count: a count never returns to 0, and a fetch before the metadata of remote
# segments is loaded can fail. OneMinuteRate is an exponential average that Kafka updates every 5 s. One error raises it
# by 0.016, and the rate is below this limit 70 s later. A partition whose copies always fail adds an error after each
# remote.log.manager.task.interval.ms (30 s by default), so that the rate stays above 0.009.
MOST_ERRORS_PER_S = 0.005

# Controllers of 3.3 and 3.4.0 still count partitions that were deleted while they were not active, even after a restart
# or an election (KAFKA-14963). Controllers of 3.4.1 do not. Measured on brokers of both releases.
COUNTS_PARTITIONS_SINCE = Release(3, 4, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """`mbean` and `attribute` in JMX."""

    mbean: str
    attribute: str
    role: Role
    """The nodes that have it."""
    most: float = 0
    """The highest value without a problem."""
    needs_tiered_storage: bool = False
    """Only brokers with tiered storage have it."""
    is_expected: bool = True
    """False: some releases do not have it, and a gate passes without it if it finds other evidence."""

    @property
    def kafka_name(self) -> str:
        """The name by which Kafka's documentation lists it."""
        return self.mbean.rpartition("name=")[2] if "name=" in self.mbean else self.attribute

    def exporter_rule(self, name: str) -> str:
        """Return the rule of a Prometheus JMX exporter that exports this counter as `name` in include/metrics."""
        domain, _, properties = self.mbean.partition(":")
        pattern = f"{domain}<{properties.replace(',', ', ')}><>{self.attribute}: (.+)"
        return f"{{pattern: '{pattern}', name: kafka_rollout_{name}, value: $1}}"


def _of_broker(attribute: str) -> Counter:
    return Counter(mbean="kafka.server:type=broker-metadata-metrics", attribute=attribute, role=Role.BROKER)


def _of_controller(name: str) -> Counter:
    return Counter(mbean=f"kafka.controller:type=KafkaController,name={name}", attribute="Value", role=Role.CONTROLLER)


def _of_remote_storage(name: str) -> Counter:
    return Counter(
        mbean=f"kafka.server:type=BrokerTopicMetrics,name={name}",
        attribute="OneMinuteRate",
        role=Role.BROKER,
        most=MOST_ERRORS_PER_S,
        needs_tiered_storage=True,
    )


def _of_coordinator(name: str, states: Sequence[str]) -> dict[str, Counter]:
    """Source: CoordinatorRuntimeMetricsImpl."""
    return {
        state: Counter(
            mbean=f"kafka.server:type={name}-coordinator-metrics,state={state.rpartition('_')[2]}",
            attribute="num-partitions",
            role=Role.BROKER,
            is_expected=False,
        )
        for state in states
    }


COUNTERS: Mapping[str, Counter] = {
    METADATA_APPLY_ERRORS: _of_broker("metadata-apply-error-count"),
    METADATA_LOAD_ERRORS: _of_broker("metadata-load-error-count"),
    METADATA_ERRORS: _of_controller("MetadataErrorCount"),
    OFFLINE_LOG_DIRECTORIES: Counter(
        mbean="kafka.log:type=LogManager,name=OfflineLogDirectoryCount", attribute="Value", role=Role.BROKER
    ),
    FENCED_BROKERS: _of_controller("FencedBrokerCount"),
    ACTIVE_BROKERS: _of_controller("ActiveBrokerCount"),
    OFFLINE_PARTITIONS: _of_controller("OfflinePartitionsCount"),
    PREFERRED_REPLICA_IMBALANCE: _of_controller("PreferredReplicaImbalanceCount"),
    REMOTE_COPY_ERRORS: _of_remote_storage("RemoteCopyErrorsPerSec"),
    REMOTE_FETCH_ERRORS: _of_remote_storage("RemoteFetchErrorsPerSec"),
    **_of_coordinator("group", (GROUPS_ACTIVE, GROUPS_LOADING, GROUPS_FAILED)),
    **_of_coordinator("share", (SHARES_ACTIVE, SHARES_LOADING, SHARES_FAILED)),
}

COORDINATOR_COUNTERS: Mapping[str, tuple[str, str, str]] = {
    GROUPS_TOPIC: (GROUPS_ACTIVE, GROUPS_LOADING, GROUPS_FAILED),
    SHARE_TOPIC: (SHARES_ACTIVE, SHARES_LOADING, SHARES_FAILED),
}
"""Topic of a coordinator → the counters of its partitions that are active, loading and failed."""
