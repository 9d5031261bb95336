"""What each check examined, with the numbers of one observation."""

from __future__ import annotations

from kafka_rollout.base.findings import Examined
from kafka_rollout.base.wording import count
from kafka_rollout.model.plan import Plan
from kafka_rollout.model.state import find_unlisted_controllers
from kafka_rollout.planning.observation import Observation


def examined_text(what: Examined, observed: Observation, plan: Plan) -> str:
    """Return the examined objects with their numbers: `3 brokers, 3 controllers`."""
    cluster, state = observed.cluster, observed.state
    match what:
        case Examined.NODES | Examined.HOSTS | Examined.FILES:
            return nodes_text(observed)
        case Examined.BROKERS:
            return count(len(cluster.brokers), "broker")
        case Examined.VOTERS:
            return count(len(state.quorum.voters), "voter") if state.quorum else "no voters"
        case Examined.TOPICS:
            topics = len({partition.topic for partition in state.partitions})
            return f"{count(topics, 'topic')}, {count(len(state.partitions), 'partition')}"
        case Examined.GROUPS:
            return f"{count(len(state.groups), 'group')}, {count(len(state.transactions), 'transactional id')}"
        case Examined.CLIENTS:
            reporting = [seen for seen in state.nodes.values() if seen.metrics and seen.metrics.release is not None]
            return f"metrics of {count(len(reporting), 'node')}"
        case Examined.LEVELS:
            return count(len(state.finalized), "finalized feature")
        case Examined.RELEASES:
            return " → ".join(map(str, plan.path))
        case Examined.RIGHTS:
            return "the user of this tool"
        case Examined.CONFIGS | Examined.DYNAMIC:
            return f"settings of {count(len(observed.configs), 'node')}"
        case Examined.JAVA:
            return f"{count(len(observed.java), 'Java version')}"
        case Examined.LOGS:
            return "records of groups and transactions"


def nodes_text(observed: Observation) -> str:
    """Return the number of nodes by role; a combined node counts as both. Controllers without an address are named."""
    cluster = observed.cluster
    known = f"{count(len(cluster.brokers), 'broker')}, {count(len(cluster.controllers), 'controller')}"
    hidden = len(find_unlisted_controllers(cluster, observed.state))
    return f"{known}, {count(hidden, 'controller')} not reachable" if hidden else known
