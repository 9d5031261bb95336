"""One change at a time per cluster, as a lease in a file (port ChangeLock).

$KAFKA_ROLLOUT_HOME/locks/<cluster>.json is the lease, .log says who took it from whom, `guard` makes look-and-take one
step, .acting is held by the process that stops, starts or finalizes. The lease is a file and not a kernel lock: a run
spans many short processes, some of them waiting for days. It carries Kafka's id of the cluster as soon as that is
known, so that two inventory files which describe one cluster keep each other out.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kafka_rollout.adapters.system.files import append_line, safe_name, write_whole
from kafka_rollout.domain.model.errors import FatalError, LockHeldError, RefusedError, TransientError, UserError
from kafka_rollout.domain.run.lease import Lock

_LOCK = TypeAdapter(Lock)


class FileChangeLock:
    """Leases under `home`/locks, a folder that all holders share; `clock` gives epoch seconds."""

    def __init__(self, home: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = home / "locks"
        self._clock = clock

    def acquire(
        self, cluster: str, holder: str, purpose: str, *, for_s: float, shorten: bool = False, cluster_id: str = ""
    ) -> Lock:
        """Take, renew or take over an expired lease; a renewal does not shorten it unless it is asked to."""
        with self._guarded():
            now = self._clock()
            held = self._read(cluster)
            if held is not None and held.holder != holder and held.expires_at > now:
                raise LockHeldError(
                    f"Cluster {cluster} is being changed by {_who(held)}.",
                    remedy="When it is done, ask again (in a DAG: clear this task with everything downstream). If that "
                    "run is dead, its lease ends by itself at that time, or a named person takes it away before: "
                    f"kafka-rollout lock break --cluster {cluster} --by NAME",
                )
            renews = held is not None and held.holder == holder and held.expires_at > now
            if held is not None and renews:
                cluster_id = cluster_id or held.cluster_id
            if (twin := self._twin(cluster, cluster_id)) is not None:
                raise LockHeldError(
                    f"Cluster {cluster} is being changed under its other name {twin.cluster} by {_who(twin)}.",
                    remedy=f"Wait for it, and keep one of the inventory files {cluster} and {twin.cluster}: both "
                    f"describe the cluster {cluster_id}.",
                )
            lock = Lock(
                cluster=cluster,
                holder=holder,
                purpose=purpose,
                acquired_at=held.acquired_at if held is not None and renews else now,
                expires_at=max(held.expires_at, now + for_s)
                if held is not None and renews and not shorten
                else now + for_s,
                cluster_id=cluster_id,
            )
            if held is not None and held.holder != holder:
                self._log(cluster, "taken over", lock, taken_from=held.holder, expired_at=held.expires_at)
            elif not renews:
                self._log(cluster, "acquired", lock)
            write_whole(self._path(cluster, "json"), _LOCK.dump_json(lock))
            return lock

    @contextmanager
    def acting(self, cluster: str, what: str) -> Iterator[None]:
        """Beside the lease, which knows holders and not processes: a kernel lock for as long as an act takes."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._path(cluster, "acting").open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TransientError(
                    f"{what} has to wait: another process acts on cluster {cluster} right now.",
                    remedy="Call again when it is done; see whether a task or a command runs twice.",
                ) from None
            yield

    def release(self, cluster: str, holder: str) -> None:
        """Give the lease back; no lease is no error. Raises RefusedError when another one holds it."""
        with self._guarded():
            held = self._read(cluster)
            if held is None:
                return
            if held.holder != holder:
                raise RefusedError(
                    f"The lock of cluster {cluster} is held by {held.holder}, not by {holder}.",
                    remedy="Only its holder releases it; a named person may break it.",
                )
            self._path(cluster, "json").unlink()
            self._log(cluster, "released", held)

    def holder(self, cluster: str) -> Lock | None:
        """The lease in force; an expired one is held by nobody."""
        held = self._read(cluster)
        return held if held is not None and held.expires_at > self._clock() else None

    def break_(self, cluster: str, by: str) -> Lock | None:
        """Take the lease away, a damaged file included; returns what was held. Raises UserError without a name."""
        if not by.strip():
            raise UserError("Breaking a lock needs the name of the person who does it.", remedy="Say who you are.")
        with self._guarded():
            path = self._path(cluster, "json")
            try:
                held = self._read(cluster)
            except FatalError as error:
                held = None
                self._log(cluster, "broken", None, by=by, damaged=error.sentence)
            else:
                if held is not None:
                    self._log(cluster, "broken", held, by=by)
            path.unlink(missing_ok=True)
            return held

    def _read(self, cluster: str) -> Lock | None:
        path = self._path(cluster, "json")
        try:
            return _LOCK.validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            raise FatalError(
                f"The lock of cluster {cluster} in {path} is damaged, so nobody can say who holds it.",
                remedy="See that no change of the cluster is under way, then break the lock by name.",
            ) from None

    def _twin(self, cluster: str, cluster_id: str) -> Lock | None:
        """A lease in force of the same cluster under another name."""
        for path in sorted(self._folder.glob("*.json")) if cluster_id else ():
            try:
                other = _LOCK.validate_json(path.read_bytes())
            except ValidationError:  # tells of no cluster id, and keeps its own cluster's runs out
                continue
            if other.cluster != cluster and other.cluster_id == cluster_id and other.expires_at > self._clock():
                return other
        return None

    def _log(self, cluster: str, what: str, lock: Lock | None, **more: Any) -> None:
        append_line(self._path(cluster, "log"), {"at": self._clock(), "what": what, "lock": lock, **more})

    def _path(self, cluster: str, suffix: str) -> Path:
        return self._folder / f"{safe_name(cluster)}.{suffix}"

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """One guard for all clusters: a look at the leases of the others belongs to the step."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "guard").open("w") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            yield


def _who(held: Lock) -> str:
    purpose = held.purpose.rstrip(".")
    return f"{held.holder} ({purpose}; its lease ends at {_time_of_day(held.expires_at)}, later if it goes on)"


def _time_of_day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
