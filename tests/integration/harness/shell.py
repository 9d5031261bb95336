"""`kafka-rollout` as a person at a shell calls it, on a real cluster, with the places of one test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kafka_rollout.run.events import Event, events_of
from kafka_rollout.run.store.history import SqlRunStore
from tests.records import run_history, run_ids
from tools.demo.folder import PROJECT_ROOT
from tools.demo.local_cluster import LocalCluster
from tools.testbed.bed import UNSEEN

APPROVED = ("--as", "alice", "--reason", "a test", "--yes")
PLANNED_ON_HOSTS = (*APPROVED, *(word for one in UNSEEN for word in ("--accept-unknown", one)))
DRY_RUN = ("upgrade", "--dry-run", "--no-scan", "--no-rehearse", "--finalize", "after-approval")
QUICK = ("--pace", "fast")
_CALL_S = 900.0  # one call on a busy machine

# For `beforehand`: a kill in the second installation of a snapshot, when the snapshot is there and the old log is not
# removed yet. Installations can run in parallel.
KILLED_IN_AN_INSTALLATION = """
import os, signal
from kafka_rollout.metadata_log.node_logs import directories as metadata_logs
from kafka_rollout.metadata_log.changes.places import DiskChanges
install, remove, seen = metadata_logs.install, DiskChanges.remove, []
def install_and_count(*given, **more):
    seen.append(given)
    return install(*given, **more)
def remove_or_die(self, path):
    if len(seen) >= 2:
        os.kill(os.getpid(), signal.SIGKILL)
    remove(self, path)
metadata_logs.install, DiskChanges.remove = install_and_count, remove_or_die
"""


class Shell:
    """Calls of the command, and what a run wrote down."""

    def __init__(self, folder: Path, cluster: LocalCluster) -> None:
        self.folder, self.cluster = folder, cluster
        self.home = folder / "home"
        self.environment = {
            **os.environ,
            "KAFKA_ROLLOUT_HOME": str(self.home),
            "KAFKA_ROLLOUT_CLUSTERS": str(cluster.inventory_path.parent),
            "PYTHONPATH": str(PROJECT_ROOT / "plugins"),
            "COLUMNS": "200",
        }

    def __call__(self, *words: str, beforehand: str = "") -> subprocess.CompletedProcess[str]:
        """`beforehand`: Python that runs in the command's process first, to end it at a place of its own."""
        return subprocess.run(
            self._command(*words, beforehand=beforehand),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_CALL_S,
            check=False,
        )

    def start(self, *words: str, beforehand: str = "") -> subprocess.Popen[bytes]:
        with (self.folder / "killed.log").open("wb") as log:
            return subprocess.Popen(
                self._command(*words, beforehand=beforehand),
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _command(self, *words: str, beforehand: str = "") -> list[str]:
        return [sys.executable, "-c", f"{beforehand}\nfrom kafka_rollout.cli.app import main; main()", *words]

    def events(self, run: SqlRunStore) -> tuple[Event, ...]:
        return run.events()

    def newest_run(self) -> SqlRunStore:
        return self.runs()[-1]

    def runs(self) -> list[SqlRunStore]:
        """The cluster's runs, oldest first."""
        cluster = self.cluster.spec.name
        return [run_history(self.home, cluster, run_id) for run_id in sorted(run_ids(self.home, cluster))]

    def count_events(self, kind: type[Event]) -> int:
        """Events of a kind in the newest run; 0 while there is none."""
        return sum(len(events_of(run.events(), kind)) for run in self.runs()[-1:])


def later_starts(cluster: LocalCluster) -> dict[int, list[str]]:
    """Releases by node, the start that made the cluster left out."""
    return {
        node.node_id: [str(start.release) for start in cluster.runtime.starts(node)][1:] for node in cluster.spec.nodes
    }
