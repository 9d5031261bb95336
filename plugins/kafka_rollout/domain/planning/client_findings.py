"""Findings about clients, groups and transactions that are connected during a rolling change.

KIP-896 removed old request versions in 4.0. A broker serves a client with old versions until the broker runs 4.x, then
it rejects the client. The brokers count such requests since they started, so the client may be gone already. The tool
cannot decide that; the operator can. Therefore these findings are warnings, never blockers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from kafka_rollout.domain.model.findings import Finding, Severity, info, warning
from kafka_rollout.domain.model.releases import Release
from kafka_rollout.domain.model.state import ClusterState, DeprecatedRequest
from kafka_rollout.domain.model.topology import ClusterSpec
from kafka_rollout.domain.model.wording import count, few

DROPS_OLD_REQUESTS = 4  # major release (KIP-896)
# DeprecatedRequestsPerSec of RequestMetrics exists in the jars of 3.7.2 and all later releases, not in 3.4.1.
COUNTS_OLD_REQUESTS_SINCE = Release(3, 7, 0)


def client_findings(cluster: ClusterSpec, state: ClusterState, *, target: Release | None) -> tuple[Finding, ...]:
    return (
        *_old_clients(state, target),
        *_old_clients_unknown(state, target),
        *_software(cluster, state),
        *_groups(cluster, state),
        *_transactions(cluster, state),
    )


def _old_clients(state: ClusterState, target: Release | None) -> Iterable[Finding]:
    drops = _drops_old_requests(state, target)
    by_client: defaultdict[tuple[str, str], list[DeprecatedRequest]] = defaultdict(list)
    for node in state.nodes.values():
        for request in node.metrics.deprecated_requests if node.metrics else ():
            if request.count > 0:
                by_client[(request.client_name, request.client_version)].append(request)
    for (name, version), requests in sorted(by_client.items()):
        apis: Counter[str] = Counter()
        for request in requests:
            apis[f"{request.api} v{request.version}"] += request.count
        sent = few(f"{api} ({times} times)" for api, times in sorted(apis.items()))
        yield Finding(
            code="OLD-CLIENTS",
            severity=Severity.WARNING if drops else Severity.INFO,
            subject=f"client {name or 'unknown'} {version or 'unknown'}",
            sentence="Since the brokers started, this client has sent request versions that KIP-896 deprecates: "
            f"{sent}.{f' Kafka {target} rejects them.' if drops else ''}",
            remedy="Upgrade these clients first, or make sure that they are stopped.",
        )


def _old_clients_unknown(state: ClusterState, target: Release | None) -> Iterable[Finding]:
    not_counting = {str(release) for release in state.releases if release < COUNTS_OLD_REQUESTS_SINCE}
    if not_counting and _drops_old_requests(state, target):
        yield warning(
            "OLD-CLIENTS-UNKNOWN",
            f"release {', '.join(sorted(not_counting))}",
            f"These brokers do not count the requests that KIP-896 deprecates, and Kafka {target} rejects "
            "such requests. It is unknown whether a client sends them.",
            "Make sure that every client meets the minimum version of KIP-896 (Java clients: 2.1). Or "
            "upgrade to a 3.x release that counts such requests first (3.7 and later), then plan again.",
        )


def _drops_old_requests(state: ClusterState, target: Release | None) -> bool:
    return (
        target is not None
        and target.major >= DROPS_OLD_REQUESTS
        and any(release.major < DROPS_OLD_REQUESTS for release in state.releases)
    )


def _software(cluster: ClusterSpec, state: ClusterState) -> Iterable[Finding]:
    connections: Counter[str] = Counter()
    for node in state.nodes.values():
        for client in node.metrics.clients if node.metrics else ():
            connections[f"{client.name} {client.version}"] += client.connections
    if connections:
        listed = few(
            (f"{client} ({count(number, 'connection')})" for client, number in connections.most_common()), limit=8
        )
        yield _info("CLIENTS", cluster, f"Connected client software: {listed}.")


def _groups(cluster: ClusterSpec, state: ClusterState) -> Iterable[Finding]:
    if state.groups:
        types = Counter(group.type for group in state.groups)
        listed = ", ".join(f"{number} {kind}" for kind, number in sorted(types.items()))
        yield _info("GROUP-TYPES", cluster, f"{count(len(state.groups), 'group')}: {listed}.")


def _transactions(cluster: ClusterSpec, state: ClusterState) -> Iterable[Finding]:
    if state.transactions:
        states = Counter(transaction.state for transaction in state.transactions)
        listed = ", ".join(f"{number} {name}" for name, number in sorted(states.items()))
        yield _info("TRANSACTIONS", cluster, f"{count(len(state.transactions), 'transactional id')}: {listed}.")


def _info(code: str, cluster: ClusterSpec, sentence: str) -> Finding:
    return info(code, f"cluster {cluster.name}", sentence)
