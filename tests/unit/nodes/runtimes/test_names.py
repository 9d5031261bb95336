"""Names that the host of a node cannot resolve, with a real shell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.names import find_unresolved
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from tests.unit.nodes.runtimes.test_node_starts import ShellOfThisMachine
from tests.unit.nodes.runtimes.test_service import NODE


@dataclass
class _Host(ShellOfThisMachine):
    path: str = "$PATH"

    def run(self, node: NodeSpec | str, command: object, **options: object) -> Done:
        return super().run(node, f"PATH={self.path}; {command}", **options)


def test_a_host_reports_the_names_that_it_cannot_resolve() -> None:
    commands = cast(HostCommands, _Host())
    assert find_unresolved(commands, NODE, ["localhost", "kafka.invalid", "127.0.0.1"]) == ("kafka.invalid",)
    assert find_unresolved(commands, NODE, ["$(touch x)"]) == ("$(touch x)",)


def test_without_getent_it_is_unknown() -> None:
    with pytest.raises(RefusedError, match="does not report whether it can resolve localhost"):
        find_unresolved(cast(HostCommands, _Host(path="/nowhere")), NODE, ["localhost"])
