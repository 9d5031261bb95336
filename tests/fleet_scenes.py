"""Clusters in many states, stored by the real store: for tests of the page of all clusters, and its benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.releases.documents.catalogue import get_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Asked,
    Begun,
    Channel,
    Decision,
    Event,
    Observed,
    Planned,
    Responder,
    StartedAtShell,
    StepEnded,
    StepOutcome,
)
from kafka_rollout.run.step_events import Finalized, Started, Stopping
from tests.fakes.cluster import make_spec
from tests.records import change_lock, run_history, scan_history
from tests.unit.scan_examples import small_scan

R381, R391, R401, R421, R431 = (Release.parse(text) for text in ("3.8.1", "3.9.1", "4.0.1", "4.2.1", "4.3.1"))
HOSTILE = '=HYPERLINK("http://evil")\u202e<b>'
STEP = "3.9.1-to-4.3.1"
SHELL = StartedAtShell(starter=Responder(channel=Channel.SHELL, user="ci", host="h"))


def make_cluster(name: str, brokers: int = 3, controllers: int = 3) -> ClusterSpec:
    """A cluster that only answers Kafka's protocol."""
    nodes = [
        NodeSpec(
            node_id=9000 + number,
            name=f"controller-{number}",
            roles=frozenset({Role.CONTROLLER}),
            controller_address=f"c{number}.{name}.example.org:9093",
        )
        for number in range(1, controllers + 1)
    ]
    nodes += [
        NodeSpec(
            node_id=number,
            name=f"broker-{number}",
            roles=frozenset({Role.BROKER}),
            broker_address=f"b{number}.{name}.example.org:9092",
            rack=f"r{number % 3}",
        )
        for number in range(1, brokers + 1)
    ]
    return replace(make_spec(name=name), nodes=tuple(nodes), runtime="none", owner=f"team-{name}")


def observed(spec: ClusterSpec, release: Release, level: int, **health: object) -> Observed:
    found = Observed(
        cluster_id=f"id-{spec.name}",
        releases={node.node_id: release for node in spec.nodes},
        finalized={"metadata.version": level},
        quorum_leader=9001,
        partitions=300,
        groups=12,
        unanswered=(),
        offline_partitions=0,
        under_min_isr=0,
        under_replicated=0,
    )
    return replace(found, **health)  # type: ignore[arg-type]


def planned(source: Release, target: Release, *blockers: str) -> Planned:
    return Planned(run_of=RunOf.UPGRADE, plan_hash="h", source=source, target=target, blockers=blockers)


def approved(by: str = "ben") -> Approval:
    return Approval(what=ApprovalOf.ROLL, by=by, decision=Decision.APPROVED, reason="CHG-1", plan_hash="h")


def asked(text: str) -> Asked:
    answer_by = time.time() + 80_000
    return Asked(
        what=ApprovalOf.ROLL, task_id="t", record_id="r", text=text, options=("Approve", "Reject"), answer_by=answer_by
    )


class Fleet:
    """Clusters in a project below `root`."""

    def __init__(self, root: Path) -> None:
        self.clusters, self.home = root / "clusters", root / "home"
        self.clusters.mkdir(parents=True, exist_ok=True)

    def add(self, name: str, **size: int) -> ClusterSpec:
        spec = make_cluster(name, **size)
        (self.clusters / f"{name}.yaml").write_text(dump_cluster(spec))
        return spec

    def run(self, cluster: str, run_id: str, *events: Event, age_s: float = 0.0, outcome: str = "") -> None:
        clock: Callable[[], float] = lambda: time.time() - age_s  # noqa: E731
        run = run_history(self.home, cluster, run_id, clock=clock)
        for event in events:
            run.record(event)
        if outcome:
            run.write_report("", {"outcome": outcome, "sentence": "So it ended.", "ended_at": clock()})

    def scan(self, cluster: str, *, age_s: float = 0.0) -> None:
        """A scan of a cluster with groups of the newer protocol: the oldest releases cannot load them."""
        result = small_scan(get_catalogue(Settings.from_environment()), at=time.time() - age_s)
        scan_history(self.home, cluster).keep(result, "", run_id="scheduled__scan")

    def lock(self, cluster: str, run_id: str) -> None:
        change_lock(self.home).acquire(cluster, run_id, "Upgrade to 4.3.1.", for_s=600)


def dag(cluster: str, kind: str = "upgrade", by: str = "anna") -> Begun:
    return Begun(dag_id=f"kafka_{kind}_{cluster}", triggered_by=by)


def make_scenes(root: Path) -> Fleet:
    """Make one cluster in each state that an operator meets."""
    fleet = Fleet(root)
    orders = fleet.add("orders", brokers=40, controllers=5)
    fleet.run(
        "orders", "manual__o", dag("orders"), observed(orders, R391, 21), planned(R391, R431), asked(HOSTILE), age_s=900
    )
    fleet.scan("orders", age_s=7200)
    payments = fleet.add("payments", brokers=12)
    rolling: Sequence[Event] = [
        *(dag("payments"), observed(payments, R391, 21), planned(R391, R431), approved()),
        Stopping(node_id=1, release_step=STEP),
        Started(node_id=1, release_step=STEP, release=R431, pid=7, seconds=9.0),
    ]
    fleet.run("payments", "manual__p", *rolling)
    fleet.lock("payments", "manual__p")
    search = fleet.add("search")
    health = {"offline_partitions": 2, "under_replicated": 17, "down": (2,)}
    fleet.run("search", "plan-s", SHELL, observed(search, R401, 25, **health), planned(R401, R431), age_s=90_000)
    fleet.scan("search", age_s=90_000)
    ledger = fleet.add("ledger")
    builds = {node.node_id: "7.9.1-ccs" for node in ledger.nodes}
    done: Sequence[Event] = [
        *(dag("ledger"), observed(ledger, R391, 21, builds=builds), planned(R391, R391), approved()),
        Finalized(levels={"metadata.version": 21}, epoch_after=3),
    ]
    fleet.run("ledger", "manual__l", *done, age_s=400_000, outcome="finished")
    fleet.add("archive")
    return fleet


def make_twelve(root: Path) -> Fleet:
    """Twelve clusters: those of `make_scenes`, and `add_others`."""
    fleet = make_scenes(root)
    add_others(fleet)
    return fleet


def add_others(fleet: Fleet) -> tuple[str, ...]:
    """Add clusters with all nodes stopped, a failed run, no response, and ended runs; return their names."""
    down = "4.3.1-to-4.2.1"

    def downgrade() -> Planned:
        return replace(planned(R431, R421), run_of=RunOf.DOWNGRADE)

    billing = fleet.add("billing")
    stops = [Stopping(node_id=node.node_id, release_step=down) for node in billing.nodes]
    begun: Sequence[Event] = [dag("billing", "downgrade"), observed(billing, R431, 30), downgrade(), approved()]
    question = replace(asked("billing: the offline step choose_log failed. How to continue?"), options=("Roll back",))
    fleet.run("billing", "manual__b", *begun, *stops, question, age_s=200)
    fleet.lock("billing", "manual__b")
    telemetry = fleet.add("telemetry")
    silent = {
        "releases": {node.node_id: None for node in telemetry.nodes},
        "down": tuple(n.node_id for n in telemetry.nodes),
    }
    unread = {"offline_partitions": None, "under_min_isr": None, "under_replicated": None, "finalized": {}}
    unreachable = observed(telemetry, R431, 30, **silent, **unread, unanswered=("No broker responds.",))
    fleet.run("telemetry", "plan-t", SHELL, unreachable, planned(R431, R431), age_s=4000)
    stock = fleet.add("stock-eu")
    failed = StepEnded(step="roll", outcome=StepOutcome.FAILED, reason="Node 1 cannot be reached: no route to host.")
    rolled: Sequence[Event] = [dag("stock-eu"), observed(stock, R391, 21), planned(R391, R431), approved()]
    fleet.run("stock-eu", "manual__f", *rolled, Stopping(node_id=1, release_step=STEP), failed, age_s=5000)
    for name, outcome in (("stock-us", "finished"), ("clicks", "rolled_back"), ("fraud", "refused")):
        events = [dag(name), observed(fleet.add(name), R391, 21), planned(R391, R431)]
        fleet.run(name, "manual__x", *events, age_s=90_000, outcome=outcome)
    long_name = "a-cluster-with-a-very-long-name-in-the-frankfurt-data-center-1"
    fleet.add(long_name, brokers=200, controllers=5)
    return ("billing", "telemetry", "stock-eu", "stock-us", "clicks", "fraud", long_name)
