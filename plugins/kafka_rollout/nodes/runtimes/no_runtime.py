"""Nodes whose hosts cannot be reached: managed services, and clusters without access to the hosts.

Only what the nodes answer is known: a broker reports its configuration, a metrics agent the Java version. Everything
that needs the host raises: NotObservableError for a value, RefusedError for a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from kafka_rollout.base.errors import NotObservableError, TransientError
from kafka_rollout.model.claims import Claim, Claims
from kafka_rollout.model.host_state import Installation
from kafka_rollout.model.log_directories import LogDirectory
from kafka_rollout.model.state import CheckpointFile, ProcessState
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.ports.cluster import ClusterAdmin, Metrics
from kafka_rollout.releases.facts import Release


@dataclass(frozen=True, slots=True)
class NoRuntime:
    """NodeRuntime of a cluster with runtime `none`."""

    cluster: ClusterSpec
    admin: ClusterAdmin
    metrics: Metrics

    def process(self, node: NodeSpec) -> ProcessState:
        self._not_observable(node, "process")

    def installation(self, node: NodeSpec) -> Installation:
        self._not_observable(node, "installation")

    def short_timeouts(self) -> AbstractContextManager[None]:
        return nullcontext()

    def java_version(self, node: NodeSpec, releases: Sequence[Release]) -> int:
        """As the metrics agent reports it."""
        try:
            java = self.metrics.read(node).java_version
        except TransientError:
            java = None
        if java is None:
            self._not_observable(node, "Java version")
        return java

    def jvm_arguments(self, node: NodeSpec, release: Release) -> tuple[str, ...]:
        self._not_observable(node, "command line")

    def jvm_problems(self, node: NodeSpec, releases: Sequence[Release]) -> tuple[str, ...]:
        self._not_observable(node, "command line")

    def unresolved_names(self, node: NodeSpec, names: Sequence[str]) -> tuple[str, ...]:
        self._not_observable(node, "host")

    def config(self, node: NodeSpec) -> Mapping[str, str]:
        """Without the values of secrets, which brokers do not report. A node that does not respond hides it."""
        try:
            return self.admin.node_config(node)
        except TransientError as error:
            raise NotObservableError(error.sentence, remedy=error.remedy) from error

    def copy_checkpoint(self, checkpoint: CheckpointFile, to: Path) -> None:
        self._not_observable(self.cluster.node(checkpoint.node_id), "metadata log")

    def log_directories(self, node: NodeSpec) -> Mapping[str, str]:
        return {}

    def log_folders(self, node: NodeSpec, config: Mapping[str, str]) -> Mapping[str, LogDirectory]:
        self._not_observable(node, "log directory")

    def claim(self, node: NodeSpec, claim: Claim) -> Claims:
        self.cluster.refuse_unmanaged()
        return Claims()

    def _not_observable(self, node: NodeSpec, what: str) -> NoReturn:
        raise NotObservableError(
            f"The {what} of node {node.name} is not observable: the cluster has runtime {self.cluster.runtime}.",
            remedy="Set runtime to local_process or ssh_service in the inventory if the host can be reached.",
        )

    def _refuse(self, *_: object, **__: object) -> Any:
        self.cluster.refuse_unmanaged()

    def _empty(self, *_: object, **__: object) -> tuple[()]:
        return ()

    def _none(self, *_: object, **__: object) -> None:
        return None

    # The other calls of the port: every change is refused, and these values do not exist here.
    bring = prepare_stop = stop = install = start = finish_start = end_claims = _refuse
    starts = log_tail = checkpoints = start_files = _empty
    host = directory_formats = metadata_log_dir = process_log = named_files = find_classes = _none
