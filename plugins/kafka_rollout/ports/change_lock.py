"""Port for the lock of one cluster."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from kafka_rollout.domain.run.lease import Lock


class ChangeLock(Protocol):
    """One change at a time per cluster. The lease of a killed run ends at `expires_at`."""

    def acquire(
        self, cluster: str, holder: str, purpose: str, *, for_s: float, shorten: bool = False, cluster_id: str = ""
    ) -> Lock:
        """Acquire or renew the lease; `shorten` lets a renewal end it earlier. Raises LockHeldError with the holder,
        its purpose and the end, also if the cluster `cluster_id` is locked under another name."""
        ...

    def acting(self, cluster: str, holder: str, what: str) -> AbstractContextManager[None]:
        """Let one process at a time act on the cluster, also of one run (a task that runs twice). Renews the lease
        until the end. Raises TransientError while another process acts, RefusedError if `holder` has lost the lease."""
        ...

    def check_acting(self, cluster: str) -> None:
        """Raise RefusedError unless this process acts on the cluster with the newest token."""
        ...

    def renewing(self, cluster: str, holder: str) -> AbstractContextManager[None]:
        """Renew the lease of `holder` in the background during a long operation, if it holds it."""
        ...

    def release(self, cluster: str, holder: str) -> None: ...
    def holder(self, cluster: str) -> Lock | None: ...
    def break_(self, cluster: str, by: str) -> Lock | None:
        """Take the lock away from its holder; `by`, an approver, is recorded. Raises RefusedError while the holder
        acts."""
        ...
