"""A rolling upgrade of an invented cluster whose history the console shows: nodes in racks, a gate that fails."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kafka_rollout.base.findings import Code, Finding, Severity
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.gates.gate import GateCheck, GateCondition, GateKind, GateRef
from kafka_rollout.gates.reasons import PROCESS, reason_of
from kafka_rollout.model.plan import Direction, Lowering, NodeStep, Plan, ReleaseStep
from kafka_rollout.model.run_of import RunOf
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role
from kafka_rollout.releases.facts import Release
from kafka_rollout.run.events import (
    Approval,
    ApprovalOf,
    Asked,
    Begun,
    Decision,
    Event,
    Planned,
    StepBegan,
    StepEnded,
    StepOutcome,
)
from kafka_rollout.run.projections.open_batches import BatchPart, RollOf
from kafka_rollout.run.step_events import (
    GateChecked,
    GateFailed,
    GatePassed,
    OfflineStopping,
    Started,
    Stopped,
    Stopping,
)
from tests.records import change_lock, run_history

R391, R431 = Release(3, 9, 1), Release(4, 3, 1)
DAG = "kafka_upgrade_orders"
RUN = "manual__2026-11-26T02:00:00+00:00"


def cluster_of(brokers: int, *, controllers: int = 3, racks: Sequence[str] = "abc") -> ClusterSpec:
    """Controllers 1…, brokers 101…, in racks in turn; `racks` empty: without racks."""
    return ClusterSpec(
        name="orders",
        snapshot_interval_s=0.0,
        nodes=(
            *(
                NodeSpec(
                    node_id=number,
                    name=f"controller-{number}",
                    roles=frozenset({Role.CONTROLLER}),
                    controller_address=f"127.0.0.1:{9000 + number}",
                    directory=f"/nowhere/controller-{number}",
                )
                for number in range(1, controllers + 1)
            ),
            *(
                NodeSpec(
                    node_id=100 + number,
                    name=f"kafka-{number}",
                    roles=frozenset({Role.BROKER}),
                    broker_address=f"127.0.0.1:{9100 + number}",
                    rack=f"rack {racks[number % len(racks)]}" if racks else None,
                    directory=f"/nowhere/kafka-{number}",
                )
                for number in range(1, brokers + 1)
            ),
        ),
    )


def upgrade_of(cluster: ClusterSpec, findings: Sequence[Finding] = ()) -> Plan:
    order = tuple(
        NodeStep(node_id=node.node_id, name=node.name, section="controllers" if node.is_controller else "brokers")
        for node in cluster.nodes
    )
    step = ReleaseStep(from_release=R391, to_release=R431, reason="To the target.", order=order)
    return Plan(
        cluster=cluster.name,
        cluster_id="abc",
        direction=Direction.UPGRADE,
        source=R391,
        target=R431,
        release_steps=(step,),
        feature_changes=(),
        config_changes=(),
        findings=tuple(findings),
    )


FINDINGS = tuple(
    Finding(
        code=Code("TOPIC-ONE-REPLICA"),
        severity=Severity.WARNING,
        subject=f"topic pay-{number}",
        sentence=f"Topic pay-{number} has one replica: it is unavailable while its broker restarts.",
        remedy="Add a replica, or accept that it is unavailable.",
    )
    for number in range(40)
)


@dataclass(kw_only=True)
class Scene:
    """The history of an upgrade until it is waiting for a decision on the node after the first `done` ones.

    `began_at`: epoch seconds.
    """

    cluster: ClusterSpec
    began_at: float
    done: int
    plan: Plan = field(init=False)
    at: float = field(init=False)
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.plan = upgrade_of(self.cluster, FINDINGS)
        self.at = self.began_at

    @property
    def step(self) -> ReleaseStep:
        return self.plan.release_steps[0]

    def add(self, event: Event) -> None:
        self.events.append(event)

    def tick(self, seconds: float) -> float:
        self.at += seconds
        return self.at

    def begin(self, run_of: RunOf = RunOf.UPGRADE, approval: str = "approve_plan") -> None:
        digest = self.plan.hash
        self.add(Begun(at=self.at, dag_id=DAG, triggered_by="anna"))
        self.do("observe", 4)
        self.do("scan_before_roll", 30)
        self.add(StepBegan(at=self.at, step="plan"))
        self.add(
            Planned(
                at=self.tick(5),
                run_of=run_of,
                plan_hash=digest,
                source=self.plan.source,
                target=self.plan.target,
                release_steps=(self.step.key,),
                blockers=(),
            )
        )
        self.add(StepEnded(at=self.at, step="plan", outcome=StepOutcome.DONE))
        self.do("rehearse", 1, StepOutcome.SKIPPED, "The run was started without a rehearsal.")
        self.add(StepBegan(at=self.at, step=approval))
        self.add(
            Approval(
                at=self.tick(60),
                what=ApprovalOf.ROLL,
                by="anna",
                decision=Decision.APPROVED,
                reason="A quiet night.",
                plan_hash=digest,
            )
        )
        self.add(StepEnded(at=self.at, step=approval, outcome=StepOutcome.DONE))
        self.do("start_traffic", 5)

    def do(self, step: str, seconds: float, outcome: StepOutcome = StepOutcome.DONE, reason: str = "") -> None:
        self.add(StepBegan(at=self.at, step=step))
        self.add(StepEnded(at=self.tick(seconds), step=step, outcome=outcome, reason=reason))

    def check(self, kind: GateKind, node_id: int, *conditions: GateCondition, is_held: bool = False) -> None:
        name = f"{'before' if kind is GateKind.BEFORE_STOP else 'after'} node {node_id}"
        ref = GateRef(kind=kind, release_step=self.step.key, node_id=node_id)
        seen = GateCheck(gate=name, at=self.at, conditions=conditions, is_held=is_held)
        self.add(GateChecked(at=self.at, ref=ref, check=seen))

    def restart(self, node_id: int) -> None:
        step = self.step.key
        self.begin_part(BatchPart.GATE_BEFORE, node_id)
        self.check(
            GateKind.BEFORE_STOP, node_id, GateCondition(name="min ISR without it", is_met=True, evidence="kept")
        )
        before = GateRef(kind=GateKind.BEFORE_STOP, release_step=step, node_id=node_id)
        self.add(GatePassed(at=self.tick(1), ref=before, gate=f"before node {node_id}", message="passed after 1 s"))
        self.end_part(BatchPart.GATE_BEFORE, node_id)
        self.begin_part(BatchPart.REPLACE, node_id)
        self.add(Stopping(at=self.tick(1), node_id=node_id, release_step=step))
        self.add(Stopped(at=self.tick(8), node_id=node_id, release_step=step, seconds=8.0, forced=False))
        self.add(Started(at=self.tick(6), node_id=node_id, release_step=step, release=R431, pid=77, seconds=6.0))
        self.end_part(BatchPart.REPLACE, node_id)
        self.begin_part(BatchPart.GATE_AFTER, node_id)

    def begin_part(self, part: BatchPart, node_id: int) -> None:
        self.add(StepBegan(at=self.at, step=RollOf.PLAN.step_of(part), batch=self.batch_of(node_id)))

    def end_part(self, part: BatchPart, node_id: int) -> None:
        step, batch = RollOf.PLAN.step_of(part), self.batch_of(node_id)
        self.add(StepEnded(at=self.at, step=step, batch=batch, outcome=StepOutcome.DONE))

    def batch_of(self, node_id: int) -> int:
        return next(one.index for one in self.plan.batch_steps if node_id in one.node_ids)

    def pass_gate(self, node_id: int, seconds: float) -> None:
        after = GateRef(kind=GateKind.AFTER_START, release_step=self.step.key, node_id=node_id)
        self.check(GateKind.AFTER_START, node_id, GateCondition(name="release", is_met=True, evidence="4.3.1"))
        self.add(GatePassed(at=self.tick(seconds), ref=after, gate=f"after node {node_id}", message="passed"))
        self.end_part(BatchPart.GATE_AFTER, node_id)

    def fail_gate(self, node_id: int, numbers: Sequence[int]) -> None:
        """`numbers`: of missing ISRs, one check a minute."""
        for number in numbers:
            self.tick(60)
            names = [f"pay-{one}" for one in range(number)]
            evidence = f"not yet in {number} ISRs of 1904: {', '.join(names[:4])} and {number - 4} more"
            missing = GateCondition(name="in every ISR it was in", is_met=False, evidence=evidence).listing(names)
            others = [GateCondition(name=name, is_met=True, evidence="as expected") for name in ("release", "answers")]
            log = "[03:02:10] ERROR Error while creating ephemeral <b>node</b>"
            process = GateCondition(name=PROCESS, is_met=True, evidence="pid 77", log=log)
            self.check(GateKind.AFTER_START, node_id, *others, process, missing)
        after = GateRef(kind=GateKind.AFTER_START, release_step=self.step.key, node_id=node_id)
        reason = reason_of([missing])
        message = f"failed after {60 * len(numbers)} s: {reason}"
        failed = {"ref": after, "gate": f"after node {node_id}", "message": message, "reason": reason}
        self.add(GateFailed(at=self.tick(1), **failed))  # type: ignore[arg-type]

    def ask(self, node_id: int) -> None:
        options = ("Wait on", "Retry", "Roll back")
        text = (
            f"orders: gate after node {node_id} failed. How to continue?\n\n"
            "- **Wait on**: Keep checking the gate for another gate timeout.\n"
            "- **Retry**: Start the node again, then keep checking the gate.\n"
            "- **Roll back**: Roll back every node that left its previous release, through the same gates. "
            "Then end the run.\n\n**At 03:04:31 UTC:** secret.setting = 7"
        )
        self.ask_about("roll.gate_after", text, options)

    def ask_about(self, task_id: str, text: str, options: tuple[str, ...]) -> None:
        self.add(
            Asked(
                what=ApprovalOf.ROLL if "Approve" in options else ApprovalOf.FAILED_GATE,
                at=self.tick(1),
                task_id=task_id,
                record_id="019ac000-0000-7000-8000-000000000001",
                text=text,
                options=options,
                users=("anna",),
                answer_by=self.at + 86_400,
            )
        )


def failing_upgrade(cluster: ClusterSpec, *, now: float, done: int) -> Scene:
    """A run that asks since about five minutes, because the gate after its node number `done` + 1 failed."""
    scene = Scene(cluster=cluster, began_at=0.0, done=done)

    def tell() -> None:
        scene.begin()
        order = scene.step.order
        for number, one in enumerate(order[:done]):
            scene.restart(one.node_id)
            scene.pass_gate(one.node_id, 100.0 + number % 5 * 20)
        scene.restart(order[done].node_id)
        scene.fail_gate(order[done].node_id, (1310, 1010, 740, 505, 320, 212))
        scene.ask(order[done].node_id)

    tell()
    shift = now - 300 - scene.at
    scene = Scene(cluster=cluster, began_at=shift, done=done)
    tell()
    return scene


def stopped_downgrade(cluster: ClusterSpec, *, now: float) -> Scene:
    """An offline downgrade that has stopped all nodes two minutes ago, and asks because its next step failed."""
    scene = Scene(cluster=cluster, began_at=now - 300, done=0)
    (step,) = scene.plan.release_steps
    down = replace(step, from_release=R431, to_release=R391, reason="All nodes are stopped.")
    scene.plan = replace(
        scene.plan,
        direction=Direction.DOWNGRADE,
        source=R431,
        target=R391,
        release_steps=(down,),
        lowering=Lowering.OFFLINE,
    )
    scene.begin(RunOf.DOWNGRADE, "approve_roll")
    scene.at = now - 120
    voters = tuple(node.node_id for node in cluster.controllers)
    sentence = "All nodes are requested to stop."
    scene.add(OfflineStopping(at=scene.at, voters=voters, unwritable=(), sentence=sentence))
    for node in cluster.nodes:
        where = {"node_id": node.node_id, "release_step": down.key}
        scene.add(Stopping(at=scene.at, **where))  # type: ignore[arg-type]
        scene.add(Stopped(at=scene.at + 3, **where, seconds=3.0, forced=False))  # type: ignore[arg-type]
    scene.at = now - 60
    scene.add(StepEnded(at=scene.at, step="offline.stop_all", outcome=StepOutcome.DONE))
    scene.add(StepBegan(at=scene.at, step="offline.choose_log"))
    text = (
        "orders: the offline step choose_log failed. How to continue?\n\n"
        "**At 03:04:31 UTC:** The metadata logs of 1 of 3 voters are available.\n\n"
        "- **Retry**: Repeat the step. It does not repeat what is done.\n"
        "- **Roll back**: Restore every node's metadata log from its backup and start the previous release.\n\n"
        "Airflow does not update this text: see the key `waits_for` or the page *Kafka rollout*, not orders\\*1\\*."
    )
    scene.ask_about("offline.choose_log", text, ("Retry", "Roll back"))
    return scene


def stage(scene: Scene, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Put the cluster into an inventory, and the run into the history; it holds the lock."""
    (folder / "clusters").mkdir()
    (folder / "clusters" / "orders.yaml").write_text(dump_cluster(scene.cluster))
    monkeypatch.setenv("KAFKA_ROLLOUT_CLUSTERS", str(folder / "clusters"))
    monkeypatch.setenv("KAFKA_ROLLOUT_HOME", str(folder / "home"))
    store = run_history(folder / "home", "orders", RUN)
    for event in scene.events:
        if isinstance(event, Planned):
            store.save_plan(scene.plan)
        store.record(event)
    change_lock(folder / "home").acquire("orders", RUN, "waits for a decision", for_s=90_000)
    return scene
