"""The last check before a node of a rehearsal starts: it can reach neither the real cluster nor its directories."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime
from kafka_rollout.rehearsal.configuration import DIRECTORY_KEYS, find_escapes


@dataclass(frozen=True, slots=True)
class GuardedRuntime(LocalProcessRuntime):
    """Local processes of a sandbox. Every start first verifies the configuration as it is on disk."""

    sandbox: Path = field(kw_only=True)
    real_addresses: frozenset[str] = field(kw_only=True)
    real_directories: frozenset[str] = field(kw_only=True)

    def start(self, node: NodeSpec) -> None:
        """Start the node. Raises RefusedError if its configuration leaves the sandbox."""
        config = self.config(node)
        found = (
            *find_escapes(config, self.real_addresses),
            *find_foreign_directories(config, self.sandbox, self.real_directories),
        )
        if found:
            raise RefusedError(
                f"The copy of {node.name} is not started, because it is not isolated: {found[0]}",
                remedy="Report this as a bug of kafka-rollout. The cluster was not touched.",
            )
        LocalProcessRuntime.start(self, node)


def find_foreign_directories(
    config: Mapping[str, str], sandbox: Path, real_directories: Collection[str]
) -> tuple[str, ...]:
    """Return sentences about directories that are not in the sandbox, after symbolic links are resolved.

    `real_directories`: homes and log directories of the real cluster. None of them can contain the sandbox or be in it.
    """
    below = sandbox.resolve()
    found = [
        f"the sandbox {below} and the cluster's directory {real} contain each other."
        for real in (Path(name).resolve() for name in real_directories)
        if below.is_relative_to(real) or real.is_relative_to(below)
    ]
    names = [name.strip() for key in DIRECTORY_KEYS for name in config.get(key, "").split(",") if name.strip()]
    if not names:
        found.append("its configuration contains no log.dirs.")
    found += [
        f"{name} is not in the sandbox {below}." for name in names if not Path(name).resolve().is_relative_to(below)
    ]
    return tuple(found)
