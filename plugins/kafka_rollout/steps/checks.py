"""All checks, in the order of the rooms. A finding has a code of one of them."""

from __future__ import annotations

from kafka_rollout.base.findings import Check
from kafka_rollout.coordinator_logs.findings import LOGS_CHECK, ROLLBACK_CHECK
from kafka_rollout.features.min_isr import MIN_ISR_CHECK
from kafka_rollout.features.requests import RANGES_CHECK, ROLLBACK_LEVELS_CHECK
from kafka_rollout.features.rules import HELD_BACK_CHECK, LEVELS_CHECK, USERS_CHECK
from kafka_rollout.gates.findings import COUNTER_CHECK, REMOTE_STORAGE_CHECK
from kafka_rollout.gates.outside import OUTSIDE_CHECK
from kafka_rollout.groups.findings import GROUPS_CHECK
from kafka_rollout.groups.migration import MIGRATION_CHECK
from kafka_rollout.model.rights import RIGHTS_CHECK
from kafka_rollout.planning.batches import WINDOWS_CHECK
from kafka_rollout.planning.downgrade import LOWERING_CHECK
from kafka_rollout.planning.findings.changed_settings import CHANGED_SETTINGS_CHECK
from kafka_rollout.planning.findings.clients import CLIENTS_CHECK, USE_CHECK
from kafka_rollout.planning.findings.cluster import (
    AGENTS_CHECK,
    AGREEMENT_CHECK,
    HIDDEN_CHECK,
    MIXED_CHECK,
    NODES_CHECK,
    PARTITIONS_CHECK,
    QUERIES_CHECK,
    QUORUM_CHECK,
    UNLISTED_CHECK,
)
from kafka_rollout.planning.findings.configuration import (
    CONFIGURATION_CHECK,
    DIRECTORIES_CHECK,
    JAVA_CHECK,
    PENDING_CHECK,
    SHUTDOWN_CHECK,
    VOTERS_CHECK,
)
from kafka_rollout.planning.findings.downgrade_scans import LOSSES_CHECK, METADATA_LOGS_CHECK
from kafka_rollout.planning.findings.dynamic_configs import DYNAMIC_CONFIGURATION_CHECK
from kafka_rollout.planning.findings.hosts import HOSTS_CHECK, REACHABLE_CHECK
from kafka_rollout.planning.findings.jvm_properties import JVM_PROPERTIES_CHECK
from kafka_rollout.planning.findings.not_observable import FILES_CHECK, OBSERVABLE_CHECK
from kafka_rollout.planning.findings.releases import ADVISORIES_CHECK, GAPS_CHECK, REPORTED_CHECK, ROLLBACK_END_CHECK
from kafka_rollout.planning.findings.zookeeper import ZOOKEEPER_CHECK
from kafka_rollout.planning.release_path import PAST_CHECK, TARGET_CHECK
from kafka_rollout.rehearsal.result import REHEARSAL_CHECK
from kafka_rollout.steps.features.race import RACE_CHECK
from kafka_rollout.steps.features.update import CONTROLLER_CHECK

CHECKS: tuple[Check, ...] = (
    RIGHTS_CHECK,
    COUNTER_CHECK,
    REMOTE_STORAGE_CHECK,
    RANGES_CHECK,
    ROLLBACK_LEVELS_CHECK,
    LEVELS_CHECK,
    HELD_BACK_CHECK,
    USERS_CHECK,
    MIN_ISR_CHECK,
    LOGS_CHECK,
    ROLLBACK_CHECK,
    GROUPS_CHECK,
    MIGRATION_CHECK,
    TARGET_CHECK,
    PAST_CHECK,
    GAPS_CHECK,
    QUERIES_CHECK,
    NODES_CHECK,
    AGENTS_CHECK,
    MIXED_CHECK,
    QUORUM_CHECK,
    AGREEMENT_CHECK,
    PARTITIONS_CHECK,
    HIDDEN_CHECK,
    UNLISTED_CHECK,
    OBSERVABLE_CHECK,
    FILES_CHECK,
    REPORTED_CHECK,
    CLIENTS_CHECK,
    USE_CHECK,
    ZOOKEEPER_CHECK,
    CONFIGURATION_CHECK,
    VOTERS_CHECK,
    JAVA_CHECK,
    SHUTDOWN_CHECK,
    DIRECTORIES_CHECK,
    DYNAMIC_CONFIGURATION_CHECK,
    CHANGED_SETTINGS_CHECK,
    JVM_PROPERTIES_CHECK,
    ADVISORIES_CHECK,
    ROLLBACK_END_CHECK,
    PENDING_CHECK,
    WINDOWS_CHECK,
    OUTSIDE_CHECK,
    HOSTS_CHECK,
    REACHABLE_CHECK,
    LOWERING_CHECK,
    METADATA_LOGS_CHECK,
    LOSSES_CHECK,
    REHEARSAL_CHECK,
    CONTROLLER_CHECK,
    RACE_CHECK,
)
