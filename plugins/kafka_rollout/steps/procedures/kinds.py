"""The kinds of runs: the DAGs, the pages, the commands and the reports read this list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kafka_rollout.model.plan import Plan
from kafka_rollout.model.run_of import RUN_COMMANDS, RunOf
from kafka_rollout.planning.fields import fields_of
from kafka_rollout.planning.request import Request
from kafka_rollout.releases.facts import Release
from kafka_rollout.report.cluster_status import RunState, action_after
from kafka_rollout.report.run_report import UNFINISHED, RunReport, find_failed_gate, list_gaps, list_proofs
from kafka_rollout.run.projections.runs import RunEnd, run_of
from kafka_rollout.steps.common.cluster_ports import ClusterPorts
from kafka_rollout.steps.procedures.downgrade import DOWNGRADE
from kafka_rollout.steps.procedures.features import FEATURES
from kafka_rollout.steps.procedures.restart import DOC, RESTART, build_restart_report
from kafka_rollout.steps.procedures.upgrade import UPGRADE
from kafka_rollout.steps.report.kinds import build_downgrade_report, build_feature_report
from kafka_rollout.steps.report.run import build_report, find_logs
from kafka_rollout.steps.step import Events, Procedure
from kafka_rollout.steps.step_history import step_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfRun:
    """A kind of run: the DAG and the command of one procedure, with its report.

    `dag_prefix`: its DAG of each cluster has this prefix and the cluster's name as id. `description` and `doc`
    (Markdown) of the DAG are templates with the cluster's `name`. `command`: of the command line, which continues a
    run. The fields of its form and its options name the kind in `planning/request.py`.
    """

    procedure: Procedure
    dag_prefix: str
    command: str
    description: str
    doc: str
    build_report: Callable[..., RunReport]


_UPGRADE_DOC = """\
### Upgrade of the Kafka cluster {name}

1. Reads the state of the cluster, and plans the release steps to the target release.
2. Asks for an approval of the plan.
3. Replaces one node at a time. The next node is stopped after the gate of the previous node has passed. If a gate
   fails, an approver chooses: keep checking, retry, or roll back.
4. Finalizes the features after a separate approval. After this, only a downgrade undoes the upgrade.

A **dry run** ends with the plan and its findings. With the finalize policy *later*, the run ends when every node runs
the target release. Start the DAG again after the soak: that run replaces no node and finalizes the features.
"""

_DOWNGRADE_DOC = """\
### Downgrade of the Kafka cluster {name}

1. Checks whether the older release can read the coordinator logs and the metadata log.
2. Reports the losses of a lower metadata.version, and asks for an approval.
3. Lowers the feature levels, metadata.version last. Waits until every node reports the levels and has a snapshot.
4. Asks for an approval of the rolling downgrade.
5. Replaces one node at a time: brokers first, then controllers, the active controller last.

A **dry run** ends with the plan, the scans and the loss report. **SAFE** refuses to continue if data would be lost.
**UNSAFE** lists the losses and continues. If Kafka refuses a lower metadata.version, the run **stops**, or continues
**live**: it stops only the controllers for some seconds. **Offline** allows it to stop all nodes where live is not
possible. The approval shows what is unavailable, and for how long.
"""

_FEATURES_DOC = """\
### Feature levels of the Kafka cluster {name} (KIP-584)

1. Reads from every node which levels it supports, and checks the request against all rules of KIP-584.
2. Sends the request to the controller for validation only.
3. Asks for an approval, changes the levels, and waits until every node reports them. No node restarts.

A **dry run** ends with the plan. A change always needs an approval if it lowers or deletes a level, or if Kafka cannot
undo it. The approval lists the users of the feature. A level that is already finalized is not sent again.
"""

KINDS: Mapping[RunOf, KindOfRun] = {
    RunOf.UPGRADE: KindOfRun(
        procedure=UPGRADE,
        dag_prefix="kafka_upgrade_",
        command=RUN_COMMANDS[RunOf.UPGRADE].name,
        description="Upgrades the Kafka cluster {name}, one node at a time. Each step waits for its gate.",
        doc=_UPGRADE_DOC,
        build_report=build_report,
    ),
    RunOf.DOWNGRADE: KindOfRun(
        procedure=DOWNGRADE,
        dag_prefix="kafka_downgrade_",
        command=RUN_COMMANDS[RunOf.DOWNGRADE].name,
        description="Downgrades the Kafka cluster {name} to an older release. Each step waits for its gate.",
        doc=_DOWNGRADE_DOC,
        build_report=build_downgrade_report,
    ),
    RunOf.FEATURES: KindOfRun(
        procedure=FEATURES,
        dag_prefix="kafka_features_",
        command="features resume",
        description="Changes the feature levels of the Kafka cluster {name}, and waits until every node reports them.",
        doc=_FEATURES_DOC,
        build_report=build_feature_report,
    ),
    RunOf.RESTART: KindOfRun(
        procedure=RESTART,
        dag_prefix="kafka_restart_",
        command=RUN_COMMANDS[RunOf.RESTART].name,
        description="Restarts the nodes of the Kafka cluster {name}, one at a time, on the release that they run.",
        doc=DOC,
        build_report=build_restart_report,
    ),
}


def kind_of(events: Events) -> KindOfRun:
    """Return the kind of the run's plan; an upgrade before there is a plan."""
    return KINDS[run_of(events)]


def continue_words(kind: RunOf, target: Release) -> str:
    """Return the name of the command that continues runs of a kind, with the options that only some kinds have."""
    has_target = any(field.name == "target" for field in fields_of(frozenset({kind}), Request))
    return f"{KINDS[kind].command} --to {target}" if has_target else KINDS[kind].command


def run_of_dag(dag_id: str) -> RunOf:
    """Return what the runs of a DAG change: an upgrade for the DAG of a user, which embeds one."""
    return next((of for of, kind in KINDS.items() if dag_id.startswith(kind.dag_prefix)), RunOf.UPGRADE)


def procedure_of(events: Events) -> Procedure:
    """Return the procedure of the run's plan; UPGRADE before there is a plan."""
    return kind_of(events).procedure


def build_report_of_run(
    ports: ClusterPorts, plan: Plan, *, dry_run: bool = False, procedure: Procedure | None = None
) -> RunReport:
    """Build the report of a run, with the steps of its procedure and the conclusion."""
    events = ports.run.events()
    procedure = procedure or procedure_of(events)
    kind = RunOf(procedure.name)
    report = KINDS[kind].build_report(ports, plan, dry_run=dry_run, proofs=procedure.proofs)
    failed = find_failed_gate(report)
    steps = step_lines(procedure, events, plan)
    run = RunState(
        run_id=ports.run_id,
        events=tuple(event for event in events if event.at),
        plan=plan,
        end=RunEnd(outcome=report.outcome, sentence=report.sentence, ended_at=report.ended_at),
        steps=steps,
        command=continue_words(kind, plan.target),
    )
    return replace(
        report,
        steps=steps,
        next_action=action_after(plan.cluster, run),
        failed_gate=failed,
        logs=find_logs(ports, failed, run.events) if report.outcome in UNFINISHED else (),
        proved=tuple(list_proofs(report)),
        not_proved=tuple(list_gaps(report)),
    )
