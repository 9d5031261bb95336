"""Commands on the host of a node, with sudo and without, and the errors of commands that fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from kafka_rollout.adapters.runtimes.hosts.rights import Right, Rights
from kafka_rollout.adapters.runtimes.hosts.shells import COMMAND_S, Done, Shell, refused_by_sudo
from kafka_rollout.domain.model.cluster.topology import NodeSpec, ServiceSpec
from kafka_rollout.domain.model.errors import RefusedError, TransientError, UserError


class HostCommands:
    """A base of runtimes on hosts."""

    __slots__ = ()
    shell: Shell

    def act(self, node: NodeSpec, right: Right, *, text: str | bytes | None = None, **values: object) -> Done:
        """Run a command with sudo; raises if it fails."""
        return self.expect(node, right, self.sudo(node, right, text=text, values=values))

    def sudo(
        self,
        node: NodeSpec,
        right: Right,
        *,
        text: str | bytes | None = None,
        sink: Callable[[bytes], object] | None = None,
        values: Mapping[str, object] = MappingProxyType({}),
        within_s: float = COMMAND_S,
    ) -> Done:
        host = service_of(node).host
        return self.shell.run(host, right.command(**values), text=text, sink=sink, within_s=within_s)

    def run(
        self,
        node: NodeSpec,
        command: str | Sequence[str],
        *,
        text: str | bytes | None = None,
        within_s: float = COMMAND_S,
    ) -> Done:
        return self.shell.run(service_of(node).host, command, text=text, within_s=within_s)

    def expect(self, node: NodeSpec, right: Right, done: Done) -> Done:
        self.refuse_missing_right(node, right, done)
        if done.code != 0:
            raise TransientError(
                f"The tool cannot {right.purpose}: node {node.name}, host {service_of(node).host}: {done.problem}.",
                remedy="Check the host and the paths of the inventory, then repeat the step.",
            )
        return done

    def refuse_missing_right(self, node: NodeSpec, right: Right, done: Done) -> None:
        if refused_by_sudo(done):
            raise RefusedError(
                f"sudo on host {service_of(node).host} refuses {right.program} as user {right.as_user}, so the tool "
                f"cannot {right.purpose} (node {node.name}).",
                remedy=f"Add to the sudoers file of the host: ({right.as_user}) NOPASSWD: {right.sudoers()}",
            )


def service_of(node: NodeSpec) -> ServiceSpec:
    if node.service is None:
        raise UserError(f"Node {node.name} has no host in the inventory.", remedy="Add its host.")
    return node.service


def rights_of(node: NodeSpec) -> Rights:
    return Rights(service_of(node))
