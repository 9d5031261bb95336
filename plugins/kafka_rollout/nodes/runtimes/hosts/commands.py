"""Commands on the host of a node, with sudo and without, and the errors of commands that fail."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from kafka_rollout.base.errors import RefusedError, TransientError, UserError
from kafka_rollout.base.fence import Fence
from kafka_rollout.base.lease import CHANGE_WITHIN_S
from kafka_rollout.model.topology import NodeSpec, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.rights import Right, Rights
from kafka_rollout.nodes.runtimes.hosts.shells import COMMAND_S, Done, Shell, refused_by_sudo

_UPTIME = "cut -d. -f1 /proc/uptime"
_UPTIME_FRESH_S = 2.0
_END_IF_CLOSED = 'case "$(grep -s ^PPid: /proc/$$/status)" in ""|*[!0-9]$PPID) ;; *) exit;; esac'
_LATE, _LATE_CODE = "kafka-rollout: too late, so this line was not run:", 76
_LATE_LINE = re.compile(rf"{_LATE} (\d+)$", re.MULTILINE)
_TRIES = 3  # without a line that was in time


class HostCommands:
    """A base of runtimes on hosts. `fence`: checked before each change. `uptimes`: host → when it was read, seconds."""

    __slots__ = ()
    shell: Shell
    fence: Fence
    monotonic: Callable[[], float]
    uptimes: dict[str, tuple[float, int]]

    def act(self, node: NodeSpec, right: Right, *, text: str | bytes | None = None, **values: object) -> Done:
        """Run a command with sudo that changes nothing; raises if it fails."""
        return self.expect(node, right, self.sudo(node, right, text=text, values=values))

    def change(
        self,
        node: NodeSpec,
        right: Right,
        *,
        text: str | bytes | None = None,
        within_s: float = COMMAND_S,
        **values: object,
    ) -> Done:
        """Run a command with sudo that changes the host; raises if it fails, or if this process may not act now."""
        line = shlex.join(right.command(**values))
        return self.expect(node, right, self.run_fenced(node, line, text=text, within_s=within_s))

    def run_fenced(
        self,
        node: NodeSpec,
        *lines: str,
        first: Sequence[str] = (),
        text: str | bytes | None = None,
        within_s: float = COMMAND_S,
    ) -> Done:
        """Run lines of the login shell that change the host, each after the one before has succeeded.

        The fence is checked right before they are sent. The host itself refuses a line that it does not start within
        CHANGE_WITHIN_S after this check, by its own clock: then this process or the network was paused, or the lines
        before took long, and another run may act. A refused line and those after it are sent again after a new check.
        `first`: lines without a change, which are run before the others each time. Raises what the fence raises, and
        TransientError if no line was in time in several tries.
        """
        host, ran, tries = service_of(node).host, 0, _TRIES
        while tries:
            until = self._read_uptime(host) + int(CHANGE_WITHIN_S)
            self.fence()
            timed = (f"in_time {number} && {lines[number]}" for number in range(ran, len(lines)))
            line = " && ".join([_in_time(until), *first, *timed])
            done = self.shell.run(host, line, text=text, within_s=within_s)
            late = _LATE_LINE.search(done.err)
            if done.code != _LATE_CODE or late is None:
                return done
            # A line that was run is not sent again: a second `mv` would not find its file.
            tries = tries - 1 if int(late[1]) == ran else _TRIES
            ran = int(late[1])
        raise TransientError(
            f"A command reached host {host} more than {CHANGE_WITHIN_S:.0f} s after the check of the lock, so it was "
            "not run.",
            remedy="Check the network and the load of the host and of this machine, then repeat the step.",
        )

    def _read_uptime(self, host: str) -> int:
        """Seconds since the boot of the host, at most _UPTIME_FRESH_S old."""
        read_at, uptime = self.uptimes.get(host, (float("-inf"), 0))
        now = self.monotonic()
        if now - read_at > _UPTIME_FRESH_S:
            done = self.shell.run(host, _UPTIME)
            if not done.out.strip().isdigit():
                raise TransientError(
                    f"Host {host} does not report its uptime: {done.problem}.",
                    remedy="Make /proc/uptime readable for the SSH user, then repeat the step.",
                )
            read_at, uptime = now, int(done.out)
            self.uptimes[host] = read_at, uptime
        return uptime

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


def _in_time(until: int) -> str:
    """A function of the shell that ends it unless the uptime of the host is less than `until` (seconds).

    It also ends a shell whose connection was closed, so it has another parent than at its start: the next call can
    act on the same files already.
    """
    late = f"{{ echo '{_LATE}' $1 >&2; exit {_LATE_CODE}; }}"
    return f'in_time() {{ {_END_IF_CLOSED}; test "$({_UPTIME})" -lt {until} || {late}; }}'


def service_of(node: NodeSpec) -> ServiceSpec:
    if node.service is None:
        raise UserError(f"Node {node.name} has no host in the inventory.", remedy="Add its host.")
    return node.service


def rights_of(node: NodeSpec) -> Rights:
    return Rights(service_of(node))
