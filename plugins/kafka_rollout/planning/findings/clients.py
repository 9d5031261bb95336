"""Findings about clients, groups and transactions that are connected during a rolling change.

Releases remove old request versions (4.0 many of them, KIP-896). A broker serves a client with old versions until the
broker runs such a release, then it rejects the client. The brokers count requests since they started, so the client may
be gone already. The tool cannot decide that; the operator can. Therefore these findings are warnings, never blockers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from kafka_rollout.base.durations import iso
from kafka_rollout.base.findings import INFO, WARNING, Check, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import count, few, nodes
from kafka_rollout.model.state import UNKNOWN_CLIENT, ClusterState, NodeMetrics
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Catalogue, Release

_Requests = tuple[str, int]  # API and version


OLD_CLIENTS = FindingCode(
    "OLD-CLIENTS", (WARNING, INFO), "Clients send request versions that the target rejects or that KIP-896 deprecates."
)
OLD_CLIENTS_UNKNOWN = FindingCode(
    "OLD-CLIENTS-UNKNOWN",
    WARNING,
    "The metrics do not contain the requests by version, so old clients are unknown.",
    "Make sure that every client meets the minimum version of KIP-896 (Java clients: 2.1). Or configure an agent with "
    "the rules of include/metrics/jmx_exporter.yaml, then plan again.",
)
CLIENT_SOFTWARE = FindingCode("CLIENTS", INFO, "The client software that is connected.")
GROUP_TYPES = FindingCode("GROUP-TYPES", INFO, "The number of groups by type.")
TRANSACTIONS = FindingCode("TRANSACTIONS", INFO, "The number of transactional ids by state.")
CLIENTS_CHECK = Check(
    "old-clients",
    "Connected clients and their request versions (KIP-896)",
    "upgrade.md#old-clients",
    (OLD_CLIENTS, OLD_CLIENTS_UNKNOWN, CLIENT_SOFTWARE),
    needs=(Need.METRICS, Need.FACTS),
    examines=Examined.CLIENTS,
)
USE_CHECK = Check(
    "groups-and-transactions",
    "Groups and transactional ids",
    "upgrade.md#findings",
    (GROUP_TYPES, TRANSACTIONS),
    needs=(Need.GROUPS,),
    examines=Examined.GROUPS,
)


def client_findings(
    cluster: ClusterSpec, catalogue: Catalogue, state: ClusterState, *, target: Release | None
) -> tuple[Finding, ...]:
    oldest = _oldest_requests(catalogue, target)
    return (
        *_old_clients(state, target, oldest),
        *_old_clients_unknown(cluster, catalogue, state, target, oldest),
        *_software(cluster, state),
    )


def use_findings(cluster: ClusterSpec, state: ClusterState) -> Iterable[Finding]:
    groups, transactions = [one.type for one in state.groups], [one.state for one in state.transactions]
    for code, noun, kinds in ((GROUP_TYPES, "group", groups), (TRANSACTIONS, "transactional id", transactions)):
        if kinds:
            listed = ", ".join(f"{number} {kind}" for kind, number in sorted(Counter(kinds).items()))
            yield code.found(f"cluster {cluster.name}", f"{count(len(kinds), noun)}: {listed}.")


def has_old_requests(catalogue: Catalogue, metrics: NodeMetrics) -> bool:
    """Return whether the node counted requests that the newest release of the catalogue does not serve."""
    oldest = _oldest_requests(catalogue, max(catalogue))
    return bool(metrics.deprecated_requests) or any(_is_rejected((r.api, r.version), oldest) for r in metrics.requests)


def _oldest_requests(catalogue: Catalogue, release: Release | None) -> Mapping[str, int]:
    """Return API in lower case → its oldest version: some exporters' rules write all names in lower case."""
    if release is None or release not in catalogue:
        return {}
    return {api.lower(): version for api, version in catalogue.get(release).oldest_requests.items()}


def _is_rejected(request: _Requests, oldest: Mapping[str, int]) -> bool:
    api, version = request
    return version < oldest.get(api.lower(), 0)


def _old_clients(state: ClusterState, target: Release | None, oldest: Mapping[str, int]) -> Iterable[Finding]:
    for client, requests in sorted(_old_requests(state, oldest).items()):
        rejected = Counter({what: times for what, times in requests.items() if _is_rejected(what, oldest)})
        shown = rejected or requests
        sent = few(f"{api} v{version} ({times} times)" for (api, version), times in sorted(shown.items()))
        addresses = _addresses(state, client, shown)
        yield OLD_CLIENTS.found(
            f"client {' '.join(client)}",
            f"{_counted_since(state)}, this client has sent request versions that "
            f"{f'Kafka {target} rejects' if rejected else 'KIP-896 deprecates'}: {sent}."
            + (f" It connects from {few(addresses)}, {_AS_LOGGED}." if addresses else ""),
            "Upgrade these clients first, or make sure that they are stopped." + ("" if addresses else _LOCATE),
            severity=WARNING if rejected else INFO,
        )


def _counted_since(state: ClusterState) -> str:
    """Return since when all brokers count. After a restart they have forgotten their earlier clients."""
    starts = [node.process.started_at for node in state.nodes.values() if node.metrics and node.metrics.requests]
    known = [at for at in starts if at is not None]
    return "Since the brokers started" + (f", the last one at {iso(max(known))}" if known else "")


_AS_LOGGED = "as lines of the brokers' logs say; another client can have written such a line"
_LOCATE = (
    " To find their addresses, set the logger kafka.request.logger of the brokers to INFO, before 3.9 to DEBUG "
    "(kafka-configs.sh --alter --entity-type broker-loggers), and plan again: the brokers then log these requests."
)


def _old_requests(state: ClusterState, oldest: Mapping[str, int]) -> dict[tuple[str, str], Counter[_Requests]]:
    """Return the old requests of each client, by its name and version; without a client they are the unknown one's."""
    by_client: defaultdict[tuple[str, str], Counter[_Requests]] = defaultdict(Counter)
    for node in state.nodes.values():
        metrics = node.metrics or NodeMetrics()
        named = {(one.api, one.version) for one in metrics.deprecated_requests}
        unnamed = [
            one
            for one in metrics.requests
            if _is_rejected((one.api, one.version), oldest) and (one.api, one.version) not in named
        ]
        for one in (*metrics.deprecated_requests, *unnamed):
            if one.count > 0:
                by_client[one.client_name, one.client_version][one.api, one.version] += one.count
    return by_client


def _addresses(state: ClusterState, client: tuple[str, str], requests: Iterable[_Requests]) -> list[str]:
    wanted = {(_as_logged(api), version) for api, version in requests}
    return sorted(
        {
            f"{one.address} (client id {one.client_id or 'empty'})"
            for one in state.logged_requests
            if (_as_logged(one.api), one.version) in wanted
            and client in ((UNKNOWN_CLIENT, UNKNOWN_CLIENT), (one.client_name, one.client_version))
        }
    )


def _as_logged(api: str) -> str:
    """`OffsetFetch` of the metrics is `OFFSET_FETCH` in the log."""
    return api.replace("_", "").upper()


def _old_clients_unknown(
    cluster: ClusterSpec,
    catalogue: Catalogue,
    state: ClusterState,
    target: Release | None,
    oldest: Mapping[str, int],
) -> Iterable[Finding]:
    """Report brokers whose metrics lack RequestsPerSec. A broker without metrics has its own finding."""
    drops = any(
        version > _oldest_requests(catalogue, release).get(api, 0)
        for release in state.releases
        for api, version in oldest.items()
    )
    read = ((broker.node_id, state.nodes.get(broker.node_id)) for broker in cluster.brokers)
    without = [
        node_id
        for node_id, node in read
        if node and node.metrics and node.metrics.is_read and not node.metrics.requests
    ]
    if drops and without:
        yield OLD_CLIENTS_UNKNOWN.found(
            "metrics agents",
            f"Kafka {target} rejects old request versions (KIP-896). The metrics of {nodes(without)} do not "
            "contain the requests by version (RequestsPerSec), so it is unknown whether a client sends old ones.",
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
        yield CLIENT_SOFTWARE.found(f"cluster {cluster.name}", f"Connected client software: {listed}.")
