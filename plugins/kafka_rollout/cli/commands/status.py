"""`kafka-rollout status`: what happens on a cluster now, for operators and machines."""

from __future__ import annotations

import time

from kafka_rollout.base.durations import duration
from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson, ClusterName
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.report.cluster_status import ClusterStatus, Truth


def status(cluster: ClusterName, as_json: AsJson = False) -> None:
    """Show what happens on a cluster: phase, node, what the run waits for, and what an operator must do.

    Reads the run histories and the lock, not the cluster. With --json, docs/cluster-status.schema.json describes the
    result. The exit code is 0 in every phase.
    """
    from kafka_rollout.wiring.run_status import read_status

    settings = Settings.from_environment()
    found = read_status(get_cluster(cluster, settings).name, settings)
    if found is None:
        raise UserError(f"Cluster {cluster} has no status.")
    if as_json:
        show.print_json(found.to_json())
    else:
        print_status(found)


def print_status(found: ClusterStatus) -> None:
    """Print a status on one screen: first what needs a human."""
    change = ""
    if found.source_release and found.target_release:
        same = found.source_release == found.target_release
        change = f", on {found.target_release}" if same else f" {found.source_release} → {found.target_release}"
    words = found.phase.value.replace("-", " ")
    title = f"{found.cluster}: {found.kind or 'no run'}{change}" if found.run else found.cluster
    show.say_marked(words.upper(), "bold red" if found.needs_human else "bold green", title)
    for condition in found.conditions:
        if condition.type == "NeedsHuman" and condition.status is Truth.TRUE:
            show.say_marked("!", "red", condition.message or condition.reason)
    if (waits := found.waits_for) is not None:
        until = f", until {_times(waits.until)}" if waits.until else ""
        show.say(f"Waits since: {_times(waits.since)}{until}")
        show.say(f"Can answer: {', '.join(waits.who)}")
    show.say(f"What to do: {found.next_action}")
    if found.step:
        show.say(f"Step: {found.step}")
    if found.nodes.total:
        show.say(f"Nodes: {found.nodes.done} of {found.nodes.total} done, {found.nodes.left} left")
    for condition in found.conditions:
        if condition.type not in {"NeedsHuman", "Locked"}:
            since = f" (since {_times(condition.since)})" if condition.since else ""
            message = f": {condition.message}" if condition.message else f": {condition.reason}"
            show.say(f"  {condition.type} {condition.status.value}{message}{since}")
    if found.lock is not None:
        holder = f"{found.lock.holder}: {found.lock.purpose}" if found.lock.holder else "a run that you cannot read"
        show.say(f"Lock: {holder}, until {_times(found.lock.expires)}")
    if found.run:
        show.say(f"Run: {found.run}, started {_times(found.started)}, last event {_times(found.updated)}")


def _times(at: str | None) -> str:
    """Return a time of the document, absolute and relative to now."""
    if at is None:
        return "unknown"
    seconds = time.time() - show.epoch(at)
    return f"{at} ({duration(seconds)} ago)" if seconds >= 0 else f"{at} (in {duration(-seconds)})"
