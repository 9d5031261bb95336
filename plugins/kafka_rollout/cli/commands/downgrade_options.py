"""`kafka-rollout downgrade-options`: the older releases that a cluster can go down to."""

from __future__ import annotations

import time

from kafka_rollout.base.durations import duration, iso
from kafka_rollout.base.errors import UserError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import count, few
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson, ClusterName
from kafka_rollout.clusters.inventory import get_cluster
from kafka_rollout.report.downgrade_options import OptionState
from kafka_rollout.report.option_details import DowngradeOptions, Option

_MARKS = {OptionState.OPEN: ("✔", "green"), OptionState.CLOSED: ("✖", "red"), OptionState.UNKNOWN: ("?", "yellow")}
_POSSIBLE = {True: "possible", False: "not possible", None: "unknown"}


def downgrade_options(cluster: ClusterName, as_json: AsJson = False) -> None:
    """Show to which older releases a cluster can go down: coordinator logs, levels, methods, history.

    Reads the stored scans, checks and runs with their age, not the cluster. Without a fresh scan an option is unknown.
    Metadata logs and losses are not part of it: `downgrade --dry-run` checks them. Exit code 0 also if nothing is open.
    """
    from kafka_rollout.wiring.downgrade_options import read_options

    settings = Settings.from_environment()
    found = read_options(get_cluster(cluster, settings), settings)
    if found is None:
        raise UserError(f"Cluster {cluster} has no options.")
    if as_json:
        show.print_json(to_json(found))
    else:
        _print(found)


def _print(found: DowngradeOptions) -> None:
    show.say(f"{found.cluster}: release {few(found.releases) or 'unknown'}")
    for what, at in (("observed", found.observed_at), ("scanned", found.scanned_at), ("checked", found.checked_at)):
        show.say(f"{what}: {'never' if at is None else f'{iso(at)} ({duration(time.time() - at)} ago)'}")
    if found.problem:
        show.say(found.problem)
    for option in found.options:
        if option.is_newest_patch:
            _print_option(found, option)
    others = [f"{one.release} {one.state}" for one in found.options if not one.is_newest_patch]
    if others:
        show.say(f"older patches (details with --json): {', '.join(others)}")
    for change in found.of_methods:
        show.say(f"{iso(change.at)}  {change.sentence}")


def _print_option(found: DowngradeOptions, option: Option) -> None:
    mark, style = _MARKS[option.state]
    show.say_marked(mark, style, f"{option.release} {option.state}")
    for reason in option.reasons:
        show.say(
            "  " + " ".join(filter(None, (f"[{reason.code}]" if reason.code else "", reason.sentence, reason.remedy)))
        )
    for log in option.logs:
        if log.records or log.verdict is None or log.verdict.badness:
            show.say(f"  {log.log}: {log.sentence}")
        for records in log.records:
            verb = "stop it" if records.stops else "are ignored"
            current = "" if records.current is None else f", {records.current:,} current"
            show.say(f"    {records.title}: {count(records.count, 'record')}{current} {verb}: {few(records.first)}")
        if log.kinds > len(log.records):
            show.say(
                f"    {log.kinds - len(log.records)} more kinds: kafka-rollout scans show --cluster {found.cluster}"
            )
    if option.state is not OptionState.CLOSED:
        for change in option.lowered:
            show.say(f"  lower first: {change}")
        for method in option.methods:
            show.say(f"  {method.name}: {_POSSIBLE[method.is_possible]}. {method.why}")
            if method.command:
                show.say(f"    outage: {method.outage}")
                show.say(f"    restarts: {method.restarts}. {method.takes}")
                show.say(f"    undo: {method.undo}")
                show.say(f"    dry run: {method.command}")
    if option.last_plan is not None:
        blockers = option.last_plan.blockers
        show.say(
            f"  last plan: {iso(option.last_plan.at)}, run {option.last_plan.run_id}, {count(len(blockers), 'blocker')}"
        )
    for past in option.history:
        show.say(f"  {iso(past.at)}  {past.sentence}")
