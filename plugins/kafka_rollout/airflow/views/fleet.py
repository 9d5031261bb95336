"""The rows of the page of all clusters. Read-only."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from kafka_rollout.airflow.common.dag_ids import SCAN_DAG_PREFIX
from kafka_rollout.base.durations import iso
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import count
from kafka_rollout.report.fleet import COLUMNS, FleetRow, Show, cells, choose_rows


def read_rows(may_read: Callable[[str], bool]) -> tuple[list[FleetRow], list[str]]:
    """Return the rows of the clusters that the user can see, and why files of the inventory have none."""
    from kafka_rollout.wiring.fleet import read_fleet

    return read_fleet(
        Settings.from_environment(),
        may_read=may_read,
        sees_scans=lambda cluster: may_read(f"{SCAN_DAG_PREFIX}{cluster}"),
    )


def fleet_table(rows: Sequence[FleetRow], problems: Sequence[str], chosen: Sequence[FleetRow]) -> dict[str, Any]:
    """Return the chosen rows as texts, and the number of rows of each filter."""
    now = time.time()
    return {
        "as_of": iso(now),
        "columns": [{"id": column.id, "title": column.title} for column in COLUMNS],
        "totals": {show.value: len(choose_rows(rows, show)) for show in Show},
        # Their texts have paths, and values of clusters that the user may not see.
        "problems": [f"{count(len(problems), 'part')} of the inventory cannot be read."] if problems else [],
        "rows": [
            {
                "cluster": row.cluster,
                "needs_human": row.needs_human,
                "running": bool(row.in_progress),
                "cells": cells(row, now),
                "links": _links(row),
            }
            for row in chosen
        ],
    }


def _links(row: FleetRow) -> dict[str, str]:
    """Return the pages of Airflow by the column that links to them, relative to the page."""
    options = {"downgrade": f"downgrade?cluster={quote(row.cluster, safe='')}"}
    if not row.dag or not row.run:
        return options
    run = f"../dags/{quote(row.dag, safe='')}/runs/{quote(row.run, safe='')}"
    return {**options, "state": run, **({"waits": f"{run}/required_actions"} if row.waits_for else {})}
