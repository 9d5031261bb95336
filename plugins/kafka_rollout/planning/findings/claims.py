"""Findings about claims: a run of another database that changes the cluster, or has changed it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from kafka_rollout.base.findings import BLOCKER, WARNING, Check, Checked, CheckOf, Finding, FindingCode, Need
from kafka_rollout.base.wording import nodes
from kafka_rollout.model.claims import Claim
from kafka_rollout.model.state import ClusterState
from kafka_rollout.model.topology import ClusterSpec

TAKE_OVER = (
    "If it is your run, set KAFKA_ROLLOUT_DATABASE to its database. Else finish or end it with that database. If that "
    "database is gone, or this one was restored from a backup, an approver takes its nodes over: `kafka-rollout "
    "unlock --claims --cluster {cluster} --as NAME`."
)
OTHER_RUN = FindingCode(
    "OTHER-DATABASE",
    (BLOCKER, WARNING),
    "A run that this database does not know changes nodes. A warning if it has ended, and for a command that reads no "
    "database.",
)
CLAIMS_UNKNOWN = FindingCode(
    "CLAIMS-UNKNOWN",
    BLOCKER,
    "Whether a run of another database changes a node is unknown.",
    "Make the files of the claims on its host readable for the user of this tool, then plan again.",
)
CLAIMS_CHECK = Check(
    "other-databases",
    "Runs of other databases",
    "operations.md#the-lock",
    (OTHER_RUN, CLAIMS_UNKNOWN),
    of=(CheckOf.UPGRADE, CheckOf.DOWNGRADE, CheckOf.FEATURES),
    needs=(Need.NODES,),
)


def describe_claims(claims: Iterable[Claim], *, ended: bool, whose: str = "another database") -> dict[str, str]:
    """Return run id → a sentence about its claims. `ended`: they are closed."""
    found: dict[str, list[Claim]] = {}
    for one in claims:
        found.setdefault(one.run_id, []).append(one)
    return {run: _describe(f"Run {run} of {whose}", of_run, ended=ended) for run, of_run in sorted(found.items())}


def _describe(run: str, claims: list[Claim], *, ended: bool) -> str:
    where = nodes(sorted({one.node_id for one in claims}))
    time = f"{datetime.fromtimestamp(min(one.at for one in claims), UTC):%Y-%m-%d %H:%M:%S} UTC"
    if ended:
        return f"{run} ({claims[-1].database}) changed {where} at {time}."
    return f"{run} ({claims[-1].database}) has claimed {where} since {time} and has not ended."


def check_claims(cluster: ClusterSpec, state: ClusterState) -> Checked:
    """Return the check of one observation."""
    hidden = "" if cluster.manages_nodes else "Without a runtime, no host shows a run of another database."
    return CLAIMS_CHECK.ran(_findings(cluster.name, state), unless=hidden)


def _findings(cluster: str, state: ClusterState) -> Iterator[Finding]:
    others = [node.other_claims for node in state.nodes.values()]
    take_over = TAKE_OVER.format(cluster=cluster)
    severity = BLOCKER if state.compares_claims else WARNING
    whose = "another database" if state.compares_claims else "some database"
    opened = (one for seen in others for one in seen.open)
    for run_id, sentence in describe_claims(opened, ended=False, whose=whose).items():
        yield OTHER_RUN.found(f"run {run_id}", sentence, take_over, severity=severity)
    closed = (seen.closed for seen in others if seen.closed is not None and state.compares_claims)
    for run_id, sentence in describe_claims(closed, ended=True).items():
        yield OTHER_RUN.found(
            f"run {run_id}",
            sentence,
            f"Make sure that no run of that database goes on. {take_over}",
            severity=WARNING,
        )
    for node_id, node in state.nodes.items():
        if node.other_claims.problem:
            yield CLAIMS_UNKNOWN.found(f"node {node_id}", f"Claims cannot be read: {node.other_claims.problem}.")
