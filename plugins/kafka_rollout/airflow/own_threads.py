"""Threads of this project in the processes that Airflow's users share.

The triggerer and the API server have few threads for the blocking calls of everybody's triggers and requests. A
database, cluster or host that does not respond would hold those threads, and with them the DAGs and pages of others.
So each such call of this project waits in one of its own threads.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

from kafka_rollout.base.errors import TransientError

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


class OwnThreads:
    """At most `threads` calls at a time. `at_most`: how many can run and wait together; None without a limit."""

    def __init__(self, name: str, threads: int, *, at_most: int | None = None) -> None:
        self._name, self._threads, self._at_most = name, threads, at_most
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0
        self._open = 0

    async def run(self, function: Callable[_Given, _Found], /, *given: _Given.args, **named: _Given.kwargs) -> _Found:
        """Return what a function returns, with the context variables of the caller, as `asyncio.to_thread`.

        Raises TransientError at once if too many calls wait already.
        """
        if self._at_most is not None and self._open >= self._at_most:
            raise TransientError(
                f"{self._open} requests wait for a database, a cluster or a file that does not respond.",
                remedy="Check what KAFKA_ROLLOUT_DATABASE and KAFKA_ROLLOUT_ARTIFACTS name, then repeat the request.",
            )
        self._open += 1
        try:
            call = partial(copy_context().run, function, *given, **named)
            return await asyncio.get_running_loop().run_in_executor(self._pool_of_process(), call)
        finally:
            self._open -= 1

    def _pool_of_process(self) -> ThreadPoolExecutor:
        """Return the pool. A process that was forked has none of the threads of its parent."""
        if self._pool is None or self._pid != os.getpid():
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix=self._name)
            self._pid = os.getpid()
        return self._pool


OF_TRIGGERS = OwnThreads("kafka-rollout-trigger", 64)
OF_PAGES = OwnThreads("kafka-rollout-page", 8, at_most=100)
