"""Ports that change a cluster. Each change first checks the fencing token."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import wraps
from typing import Any, cast

from kafka_rollout.steps.common.cluster_ports import ClusterPorts

_OF_RUNTIME = frozenset({"bring", "stop", "install", "start"})
_OF_METADATA_LOGS = frozenset({"trim", "replace_bootstrap", "install", "undo_install", "raise_epoch"})
_OF_ADMIN = frozenset(
    {"update_features", "set_default_config", "unregister_broker"}
)  # without elections: gates request them, and they change neither release nor level


def fence_cluster_ports(ports: ClusterPorts) -> ClusterPorts:
    """Return the ports with a check before each change.

    A change raises RefusedError unless this process acts with the newest token of the cluster.
    """

    def check() -> None:
        ports.lock.check_acting(ports.cluster.name)

    return replace(
        ports,
        admin=cast(Any, _Fenced(ports.admin, _OF_ADMIN, check)),
        runtime=cast(Any, _Fenced(ports.runtime, _OF_RUNTIME, check)),
        metadata_logs=cast(Any, _Fenced(ports.metadata_logs, _OF_METADATA_LOGS, check)),
    )


class _Fenced:
    """A port with a check before each of its `actions`. A validate-only request is not checked."""

    def __init__(self, port: Any, actions: Collection[str], check: Callable[[], None]) -> None:
        self._port = port
        self._actions = actions
        self._check = check

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        if name not in self._actions:
            return found

        @wraps(found)
        def act(*args: Any, **options: Any) -> Any:
            if not options.get("validate_only"):
                self._check()
            return found(*args, **options)

        return act
