"""Groups before a step that some of them would not survive: have they been converted, and do their records allow it?"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from kafka_rollout.domain.errors import RefusedError
from kafka_rollout.domain.gates import Condition, GateLook
from kafka_rollout.domain.group_records import SERVED_BY, GroupRecords, conversion_conditions
from kafka_rollout.domain.plan import Direction, Plan
from kafka_rollout.domain.releases import Release
from kafka_rollout.steps.workbench import Workbench

GATE = "groups"


def falling_types(plan: Plan) -> frozenset[str]:
    """Group types that brokers no longer serve after the plan's features; none where a person accepted the losses."""
    if plan.unsafe:
        return frozenset()
    return frozenset(
        SERVED_BY[change.feature]
        for change in plan.feature_changes
        if change.feature in SERVED_BY and change.target < 1 <= change.current
    )


def look_at_groups(bench: Workbench, plan: Plan) -> GateLook:
    """What the plan's next step needs of groups; nothing on a way up, where no type loses its feature."""
    releases = [hop.to_release for hop in plan.hops] if plan.direction is Direction.DOWNGRADE else []
    return look_at_conversion(bench, falling_types(plan), releases, leave_long_logs=True)


def look_at_conversion(
    bench: Workbench, kinds: Collection[str], releases: Sequence[Release], *, leave_long_logs: bool = False
) -> GateLook:
    """Whether groups of these types are converted, and what releases would do with their records.

    A log that is too long to be read here raises RefusedError; with `leave_long_logs` it is left to a scan, as in a
    run: what rolls scans it anyway, and where nothing is rolled its records stop nobody yet.
    """
    conditions: tuple[Condition, ...] = ()
    if kinds or releases:
        groups = bench.admin.groups() if kinds else ()
        try:
            records: GroupRecords | str = bench.logs.group_records()
        except RefusedError as error:
            if not leave_long_logs:
                raise
            records = error.sentence
        wanted = tuple(dict.fromkeys(releases))
        conditions = conversion_conditions(groups, records, kinds, catalogue=bench.catalogue, releases=wanted)
    return GateLook(gate=GATE, at=time.time(), conditions=conditions)
