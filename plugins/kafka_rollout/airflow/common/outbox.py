"""What the history of runs learns of Airflow's scheduler and API server, which never wait for it.

Airflow calls its listeners inside its loops and transactions. A database that does not respond would delay the runs of
all DAGs there. So a listener only puts an update here, and one thread of the process carries out all of them in order.
"""

from __future__ import annotations

import atexit
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, repeat
from threading import Condition, Thread

from kafka_rollout.base.errors import TransientError

log = logging.getLogger(__name__)

MOST = 10_000
KEPT_S = 3600.0
RETRY_S = (1.0, 5.0, 15.0, 60.0)
AT_EXIT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryUpdate:
    """What the history of a run must learn."""

    what: str
    """For the log, as the subject of a sentence."""
    apply: Callable[[], object]
    kept_s: float = KEPT_S
    """Seconds after which it is of no use any more."""


class Outbox:
    """The updates of a process. One that meets a database without response is repeated, and delays the later ones.

    At most MOST wait. If the process ends before the database responds, the lease of the run's lock expires by itself.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, retry_s: tuple[float, ...] = RETRY_S) -> None:
        self._clock, self._retry_s = clock, retry_s
        self._forget()

    def _forget(self) -> None:
        self._waiting: deque[tuple[float, HistoryUpdate]] = deque()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._pid = os.getpid()

    def put(self, update: HistoryUpdate) -> None:
        """Return at once. A process that was forked does not repeat the updates of its parent."""
        if self._pid != os.getpid():
            self._forget()
        with self._changed:
            if len(self._waiting) >= MOST:
                log.error("%s is not recorded: %d updates wait for the database.", update.what, MOST)
                return
            self._waiting.append((self._clock(), update))
            if self._thread is None:
                self._thread = Thread(target=self._work, name="kafka-rollout-outbox", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait_until_empty(self, within_s: float) -> bool:
        """Return whether everything was applied, or given up, within this time (seconds)."""
        if self._pid != os.getpid():
            return True
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting, within_s)

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                put_at, update = self._waiting[0]
            self._apply(put_at, update)
            with self._changed:
                self._waiting.popleft()
                self._changed.notify_all()

    def _apply(self, put_at: float, update: HistoryUpdate) -> None:
        for pause_s in chain(self._retry_s, repeat(self._retry_s[-1])):
            if self._clock() - put_at > update.kept_s:
                log.error("%s is not recorded: the database did not respond for too long.", update.what)
                return
            try:
                update.apply()
                return
            except TransientError as error:
                log.warning("%s is recorded later: %s", update.what, error)
            except Exception as error:  # one odd history must not hold back the others
                log.error("%s cannot be recorded: %s", update.what, error)
                return
            time.sleep(pause_s)


OUTBOX = Outbox()
atexit.register(lambda: OUTBOX.wait_until_empty(AT_EXIT_S))
