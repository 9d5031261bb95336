"""The gates of the script in roll.sh: the facts that the gates of the tool check, without the tool's steps.

    python bench/hosts/gate.py before|after INVENTORY SSH_CONFIG NODE TARGET STATE

`before` checks until the node can be stopped, then writes the partitions of its ISRs and its leaderships to the file
STATE. `after` checks until three consecutive checks have passed, one second apart. It reads the process and its jars by
one `ssh` per check. Exit code 1 if the gate has not passed after ten minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafka_rollout.base.errors import TransientError
from kafka_rollout.client.admin import KafkaAdmin
from kafka_rollout.clusters.inventory import load_cluster
from kafka_rollout.model.state import check_caught_up, check_spare_voters
from kafka_rollout.model.topology import ClusterSpec, NodeSpec

CHECKS, INTERVAL_S, TIMEOUT_S = 3, 1.0, 600.0
_JARS = 'sudo -u kafka ls -l "/proc/$(systemctl show --property=MainPID --value kafka.service)/fd"'


@dataclass(frozen=True, slots=True)
class Gates:
    """The gates of one node."""

    cluster: ClusterSpec
    admin: KafkaAdmin
    node: NodeSpec

    @property
    def host(self) -> str:
        if self.node.service is None:
            raise SystemExit(f"Node {self.node.name} has no host.")
        return self.node.service.host

    def own(self) -> dict[str, list[str]]:
        """The names of the partitions whose ISR has the node, and of those that it leads."""
        partitions = self.admin.partitions()
        return {
            "isr": [p.name for p in partitions if self.node.node_id in p.isr],
            "leads": [p.name for p in partitions if p.leader == self.node.node_id],
        }

    def before(self) -> bool:
        """Every node responds, and the others can serve every partition and the quorum."""
        for node in self.cluster.nodes:
            self.admin.features(node)
        partitions, quorum, node_id = self.admin.partitions(), self.admin.quorum(), self.node.node_id
        if not self._unfenced() >= {broker.node_id for broker in self.cluster.brokers} or quorum.leader_id < 0:
            return False
        if any(p.leader < 0 or len(p.isr) < p.min_isr for p in partitions):
            return False
        kept = [(len(set(p.isr) - {node_id}), p.min_isr) for p in partitions if node_id in p.isr]
        if any(others < max(1, min_isr) for others, min_isr in kept):
            return False
        return not self.node.is_controller or check_spare_voters(quorum, node_id)[0]

    def after(self, ssh: Sequence[str], target: str, before: dict[str, list[str]]) -> bool:
        """The node runs the jars of the release, responds, follows the quorum, and has its ISRs and leaderships."""
        jars = subprocess.run([*ssh, self.host, _JARS], capture_output=True, text=True, check=False).stdout
        if f"-{target}.jar" not in jars:
            return False
        self.admin.features(self.node)
        node_id = self.node.node_id
        if not check_caught_up(self.admin.quorum(), node_id)[0]:
            return False
        if not self.node.is_broker:
            return True
        partitions = self.admin.partitions()
        if node_id not in self._unfenced() or any(p.name in before["isr"] and node_id not in p.isr for p in partitions):
            return False
        own = [p for p in partitions if p.name in before["leads"] and p.preferred_leader == node_id]
        if elsewhere := [p for p in own if p.leader != node_id]:
            self.admin.elect_preferred_leaders(elsewhere)
            return False
        self.admin.coordinators(self.node, partitions)
        return True

    def _unfenced(self) -> frozenset[int]:
        return self.admin.registered().unfenced


def main(arguments: Sequence[str]) -> int:
    gate, inventory, config, node_id, target, state = arguments
    cluster = load_cluster(Path(inventory))
    node = cluster.node(int(node_id))
    with KafkaAdmin(cluster) as admin:
        gates = Gates(cluster, admin, node)
        if gate == "before":
            passed = _wait(gates.before, 1)
            Path(state).write_text(json.dumps(gates.own()))
        else:
            ssh, before = ("ssh", "-F", config, "-o", "LogLevel=ERROR"), json.loads(Path(state).read_text())
            passed = _wait(lambda: gates.after(ssh, target, before), CHECKS)
    return 0 if passed else 1


def _wait(check: Callable[[], bool], checks: int) -> bool:
    deadline, passed = time.monotonic() + TIMEOUT_S, 0
    while time.monotonic() < deadline:
        try:
            passed = passed + 1 if check() else 0
        except TransientError:
            passed = 0
        if passed == checks:
            return True
        time.sleep(INTERVAL_S)
    return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
