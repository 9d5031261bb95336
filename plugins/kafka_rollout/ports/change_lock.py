"""Port for the lock of one cluster."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from kafka_rollout.domain.run.lease import Lock


class ChangeLock(Protocol):
    """One change at a time per cluster. A lease: a killed holder blocks others only until `expires_at`."""

    def acquire(
        self, cluster: str, holder: str, purpose: str, *, for_s: float, shorten: bool = False, cluster_id: str = ""
    ) -> Lock:
        """Take or renew (a renewal makes the lease shorter only with `shorten`); raises LockHeldError naming the
        holder, its purpose and when it ends.

        With `cluster_id`, which a lease keeps once it is known, also when that cluster is held under another name."""
        ...

    def acting(self, cluster: str, holder: str, what: str) -> AbstractContextManager[None]:
        """One process at a time acts on the cluster, also of one holder (a task that runs twice, a run resumed
        twice). The lease is renewed until the end. Raises TransientError while another process acts, RefusedError
        where `holder` does not have the lease; ends with the process."""
        ...

    def check_acting(self, cluster: str) -> None:
        """Raise RefusedError unless this process acts on the cluster and nobody has acquired the lease since."""
        ...

    def renewing(self, cluster: str, holder: str) -> AbstractContextManager[None]:
        """Renew the lease of `holder` in the background during a long operation, if it holds it."""
        ...

    def release(self, cluster: str, holder: str) -> None: ...
    def holder(self, cluster: str) -> Lock | None: ...
    def break_(self, cluster: str, by: str) -> Lock | None:
        """Take the lock away from its holder; `by` is the named person and is recorded. Raises RefusedError while
        the holder acts."""
        ...
