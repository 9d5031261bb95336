"""The plot of a run, which the API server keeps for some seconds, because a page that refreshes asks often."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from threading import Lock

from kafka_rollout.airflow.views.records import find_run
from kafka_rollout.base.errors import RolloutError, TransientError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.report.run_report import stored_end
from kafka_rollout.report.spans import spans_of_run
from kafka_rollout.run.background import BackgroundKey, BackgroundKind, series_of
from kafka_rollout.run.ports import RunStore
from kafka_rollout.run.view import RunView

KEPT_S = 10.0
WAIT_S = 3.0
_KEPT = 50


class Drawings:
    """At most one drawing in KEPT_S seconds for each key, and one at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._drawn: OrderedDict[Hashable, tuple[float, str]] = OrderedDict()

    def get(self, key: Hashable, draw: Callable[[], str]) -> str:
        """Return the kept drawing, or a new one. Raises TransientError while others are drawn.

        A request that waits holds a thread of the API server.
        """
        if not self._lock.acquire(timeout=WAIT_S):
            raise TransientError("Other plots are drawn now.", remedy="Repeat the request in some seconds.")
        try:
            kept = self._drawn.get(key)
            if kept is not None and self._clock() - kept[0] < KEPT_S:
                return kept[1]
            drawing = draw()
            self._drawn[key] = (self._clock(), drawing)
            self._drawn.move_to_end(key)
            while len(self._drawn) > _KEPT:
                self._drawn.popitem(last=False)
            return drawing
        finally:
            self._lock.release()


DRAWINGS = Drawings()


def traffic_svg(dag_id: str, run_id: str, settings: Settings) -> str | None:
    """Return the plot of a run's node steps and test traffic until now; None if it has neither, or no such run."""
    found = find_run(dag_id, run_id, settings)
    if found is None:
        return None
    cluster, store = found
    return DRAWINGS.get((str(settings), cluster, run_id), partial(_draw, cluster, run_id, store, settings)) or None


def _draw(cluster: str, run_id: str, store: RunStore, settings: Settings) -> str:
    from kafka_rollout.report.page.pages import traffic_plot
    from kafka_rollout.run.store.background import SqlBackground
    from kafka_rollout.run.store.opening import database_of

    view = RunView.of(event for event in store.events() if event.at)
    try:
        plan = store.load_plan()
        names = {one.node_id: one.name for step in plan.release_steps for one in step.order}
    except RolloutError:
        names = {}
    key = BackgroundKey(cluster=cluster, run_id=run_id, kind=BackgroundKind.TRAFFIC)
    samples = series_of(SqlBackground(database_of(settings)).read(key)).series
    has_ended = stored_end(store) is not None
    return traffic_plot(samples, spans_of_run(view, names), now=None if has_ended else time.time(), alone=True)
