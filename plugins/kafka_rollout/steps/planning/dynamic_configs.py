"""Checks of the configuration for the releases that the nodes will run: dynamic, and defaults that change."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.base.findings import Checked, Finding, Severity
from kafka_rollout.model.configs import DynamicConfigs, with_inventory_values
from kafka_rollout.model.plan import Plan
from kafka_rollout.planning.checks import NO_RESTART
from kafka_rollout.planning.findings.changed_settings import CHANGED_SETTINGS_CHECK, changed_setting_findings
from kafka_rollout.planning.findings.configuration import effective_config, planned_configs
from kafka_rollout.planning.findings.dynamic_configs import (
    DYNAMIC_CONFIGURATION_CHECK,
    dynamic_config_findings,
    find_removed_settings,
    unread_config_finding,
)
from kafka_rollout.planning.findings.not_observable import not_observable, unresolved_dynamic_findings
from kafka_rollout.releases.facts import Release
from kafka_rollout.steps.common.cluster_ports import ClusterPorts

_CHECKED = "plan/dynamic-configs.json"


def check_dynamic_configs(
    ports: ClusterPorts, plan: Plan, configs: Mapping[int, Mapping[str, str]]
) -> tuple[Checked, ...]:
    """Check the configuration for all releases of the plan. `configs`: the current configuration by node.

    A dynamic value has precedence over a changed default, so both are judged together.
    """
    dynamic = _read(ports)
    if isinstance(dynamic, Finding):
        if not ports.cluster.manages_nodes:
            dynamic = not_observable(dynamic.subject, "Dynamic configurations")
        unread = CHANGED_SETTINGS_CHECK.ran(unknown="The dynamic configuration is unknown.")
        return unread, DYNAMIC_CONFIGURATION_CHECK.ran([dynamic])
    releases = plan.path[1:]
    planned = planned_configs(plan.path, configs, plan.config_changes)
    of_brokers = {
        node.node_id: {**dynamic.all_brokers, **dynamic.brokers.get(node.node_id, {})} for node in ports.cluster.brokers
    }
    unresolved = unresolved_dynamic_findings(dynamic)
    found = [finding for release in releases for finding in _check(ports, plan, release, planned[release], dynamic)]
    ports.run.attach(_CHECKED, {str(release): _fingerprint(dynamic) for release in releases})
    return (
        CHANGED_SETTINGS_CHECK.ran(
            changed_setting_findings(ports.cluster, ports.catalogue, plan.path, planned, of_brokers),
            unless="" if releases else NO_RESTART,
        ),
        DYNAMIC_CONFIGURATION_CHECK.ran((*unresolved, *found), unless="" if releases or unresolved else NO_RESTART),
    )


def recheck_dynamic_configs(ports: ClusterPorts, plan: Plan, release: Release) -> tuple[Finding, ...]:
    """Return the findings for a release if the dynamic configuration changed since it was checked last."""
    dynamic = _read(ports)
    if isinstance(dynamic, Finding):
        return (dynamic,)
    checked = dict(ports.run.attachment(_CHECKED) or {})
    if checked.get(str(release)) == _fingerprint(dynamic):
        return ()
    configs = {
        node.node_id: effective_config(node.node_id, ports.runtime.config(node), plan.config_changes, release)
        for node in ports.cluster.brokers
    }
    found = _check(ports, plan, release, configs, dynamic)
    if not any(finding.severity is Severity.BLOCKER for finding in found):
        ports.run.attach(_CHECKED, {**checked, str(release): _fingerprint(dynamic)})
    return found


def _read(ports: ClusterPorts) -> DynamicConfigs | Finding:
    try:
        return ports.admin.dynamic_configs()
    except (TransientError, RefusedError) as error:
        return unread_config_finding(error.sentence, error.remedy)


def _check(
    ports: ClusterPorts,
    plan: Plan,
    release: Release,
    configs: Mapping[int, Mapping[str, str]],
    dynamic: DynamicConfigs,
) -> tuple[Finding, ...]:
    brokers = {
        node.node_id: with_inventory_values(node, configs[node.node_id])
        for node in ports.cluster.brokers
        if node.node_id in configs
    }
    problems = (
        *ports.classes.dynamic_config_problems(release, brokers, dynamic),
        *find_removed_settings(ports.catalogue, plan.source, release, dynamic),
    )
    return dynamic_config_findings(ports.catalogue, release, problems, dynamic, ports.cluster.bootstrap_servers)


def _fingerprint(dynamic: DynamicConfigs) -> str:
    """A hash: a configuration can hold secrets."""
    kinds = (dynamic.topics, dynamic.brokers, dynamic.groups, dynamic.subscriptions, dynamic.quotas)
    parts = [sorted((str(name), sorted(values.items())) for name, values in kind.items()) for kind in kinds]
    return hashlib.sha256(repr((parts, sorted(dynamic.all_brokers.items()))).encode()).hexdigest()
