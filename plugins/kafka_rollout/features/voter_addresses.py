"""The addresses that the voters get when a static quorum becomes dynamic (kraft.version 1, KIP-853).

In a static quorum each node reaches the controllers at controller.quorum.voters. Raising kraft.version writes a
VotersRecord with the addresses that each controller has registered: those that it advertises, or its own host name for
a listener of all interfaces (ControllerServer, KafkaConfig.effectiveAdvertisedControllerListeners). From then on only
these count, and kraft.version is never lowered. Kafka does not try them: open connections hide a wrong address until
the next restart or election. That the nodes use an address already is the only proof here that it leads to a voter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from kafka_rollout.base.findings import BLOCKER, WARNING, Finding, FindingCode
from kafka_rollout.base.wording import few, nodes
from kafka_rollout.model.quorum_addresses import QUORUM_BOOTSTRAP, QUORUM_VOTERS, Address, parse_voters
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec

VOTER_ADDRESS_CHANGES = FindingCode(
    "VOTER-ADDRESS-CHANGES",
    BLOCKER,
    "Raising kraft.version would give a voter another address than the one at which the nodes reach it, permanently.",
    f"Make both equal and restart the changed nodes: `advertised.listeners` of the controller, and its entry in "
    f"{QUORUM_VOTERS} of every node. Then repeat the command.",
)


VOTER_ADDRESSES = FindingCode(
    "VOTER-ADDRESSES",
    WARNING,
    "Raising kraft.version writes the addresses of the voters into the metadata log, permanently.",
    "Approve these addresses with the change, or correct `advertised.listeners` of the controllers first.",
)


def voter_address_findings(cluster: ClusterSpec, state: ClusterState) -> Iterator[Finding]:
    """Yield a finding for each controller of a static quorum whose registered address is not the one in use, one for
    the nodes that did not report what they use, and one with all addresses that the voters get."""
    if state.has_dynamic_quorum:
        return
    if unread := [node.node_id for node in cluster.nodes if node.node_id not in state.quorum_in_use]:
        yield VOTER_ADDRESS_CHANGES.found(
            nodes(unread),
            f"It is unknown at which addresses {nodes(unread)} reach the controllers: no {QUORUM_VOTERS} and no "
            f"{QUORUM_BOOTSTRAP} was reported.",
            "Check why these nodes do not report their settings, then repeat the command.",
        )
    used: dict[int, set[Address]] = {}
    for config in state.quorum_in_use.values():
        for voter, address in (parse_voters(config) or {}).items():
            used.setdefault(voter, set()).add(address)
    voters = {node.node_id for node in cluster.controllers} | (state.quorum.voter_ids if state.quorum else set())
    listed = {voter: state.registered.controller_addresses.get(voter, "unknown") for voter in sorted(voters)}
    yield VOTER_ADDRESSES.found(
        "controllers",
        "The voters get these addresses, and every node reaches them only there from then on: "
        f"{few((f'controller {voter} {address}' for voter, address in listed.items()), limit=len(listed))}.",
    )
    for voter in sorted(voters):
        registered, named = state.registered.controller_addresses.get(voter), used.get(voter, set())
        if registered is not None and named == {registered}:
            continue
        at = f"at {few(sorted(map(str, named)))} ({QUORUM_VOTERS})" if named else "at an address that none reported"
        has = f"has registered {registered}" if registered else "did not show which address it has registered"
        yield VOTER_ADDRESS_CHANGES.found(
            f"controller {voter}",
            f"Controller {voter} {has}, and the nodes reach it {at}. With kraft.version 1 they use only the registered "
            "address: a node that cannot reach the controller there loses the quorum at its next restart, and an "
            "election can fence every broker.",
            _keep(voter, named) if registered is not None and len(named) == 1 else None,
        )


def _keep(voter: int, named: Collection[Address]) -> str:
    """Return how the voter keeps its address. A name and an address of one host can be both right: only the hosts of
    the nodes resolve them."""
    (used,) = named
    return (
        f"Keep the address that is proven: set that of the controller listener in `advertised.listeners` of controller "
        f"{voter} to {used}, and restart this controller (`kafka-rollout restart`). Then repeat the command."
    )
