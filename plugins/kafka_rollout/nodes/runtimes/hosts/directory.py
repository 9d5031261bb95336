"""The metadata directory of a node on its host: its files, read and changed by single commands as the node's user."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace

from kafka_rollout.base.errors import FatalError, RefusedError, UserError
from kafka_rollout.base.wording import size as size_text
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, service_of
from kafka_rollout.nodes.runtimes.hosts.rights import DRAFT, MetadataRights, Right
from kafka_rollout.nodes.runtimes.hosts.shells import COMMAND_S, refused_by_sudo

GROWTH = 1 << 30  # bytes that a file can have grown by since it was listed: log.segment.bytes by default
_BYTES_S = 1 << 20  # slower connections are given up
_RUNS, _DIFFERS = 75, 77  # exit codes of a change that was refused, and of a draft that differs from its source
_ENTRY = re.compile(r"([a-z])/(\d+)/(\d+(?:\.\d+)?)/(\d+)(/.+)")
_NAME = re.compile(r"meta\.properties|bootstrap\.checkpoint|__cluster_metadata-0(/[a-z0-9][A-Za-z0-9_.-]*){0,2}")
MISSING = "No such file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file or folder. `name`: below the directory. `size` in bytes, `modified_at` in epoch seconds."""

    name: str
    is_folder: bool
    size: int
    modified_at: float
    inode: int


@dataclass(frozen=True, slots=True)
class HostDirectory:
    """A node's metadata.log.dir on its host."""

    commands: HostCommands
    node: NodeSpec
    path: str

    @property
    def rights(self) -> MetadataRights:
        return MetadataRights(service_of(self.node).user, self.path)

    def entries(self) -> tuple[Entry, ...]:
        """The metadata log, bootstrap.checkpoint and meta.properties, without those that do not exist."""
        done = self.commands.sudo(self.node, self.rights.list)
        failed = [line for line in done.err.splitlines() if "find: " in line]
        others = [line for line in failed if MISSING not in line]
        if others or not failed:  # no file disappeared while its folder was read
            done = replace(done, err="\n".join(others) or done.err)
            self.commands.expect(self.node, self.rights.list, done)
        found = []
        for match in filter(None, map(_ENTRY.fullmatch, done.out.split("|"))):
            name = match[5].removeprefix(f"{self.path}/")
            if match[1] in "df" and _NAME.fullmatch(name):
                found.append(
                    Entry(
                        name=name,
                        is_folder=match[1] == "d",
                        size=int(match[2]),
                        modified_at=float(match[3]),
                        inode=int(match[4]),
                    )
                )
        return tuple(found)

    def read(self, name: str, size: int, sink: Callable[[bytes], object]) -> None:
        """Pass on the content of a file. Raises FileNotFoundError if the node has removed it, RefusedError as
        `limit_sink`."""
        right = self.rights.read
        sink = limit_sink(sink, self.node, f"{self.path}/{name}", size)
        done = self.commands.sudo(self.node, right, sink=sink, values={"file": name}, within_s=transfer_s(size))
        if MISSING in done.err:
            raise FileNotFoundError(f"{self.path}/{name}")
        self.commands.expect(self.node, right, done)

    def free_bytes(self) -> int:
        right = self.rights.free
        done = self.commands.expect(self.node, right, self.commands.sudo(self.node, right))
        return int(done.out.split()[-1])

    def refuse_running(self) -> None:
        """Raise UserError unless the unit of the node is stopped."""
        if self.commands.run(self.node, _is_stopped(self.node)).code != 0:
            raise self._runs()

    def change(self, *steps: tuple[Right, dict[str, str]], data: bytes | None = None, size: int = 0) -> None:
        """Run commands in one command line until one fails, each of them fenced.

        `data`: input of `write`. `size`: the bytes that the commands copy. The values of `digest` have the expected
        digest too (`sha256`, hex).

        Raises UserError, and changes nothing more, if the unit of the node runs, which is checked each time that the
        line is sent; FatalError if a command fails or a draft has another digest.
        """
        done = self.commands.run_fenced(
            self.node,
            *(self._line(right, values) for right, values in steps),
            first=[_is_stopped(self.node)],
            text=data,
            within_s=transfer_s(size),
        )
        if done.code == _RUNS:
            raise self._runs()
        if done.code == _DIFFERS:
            raise FatalError(
                f"The copy {done.problem} on host {service_of(self.node).host} differs from its source.",
                remedy="Check the disk of the host, then repeat the step.",
            )
        if refused_by_sudo(done):
            for right, values in steps:
                asked = self.commands.run(self.node, right.allowed_command(**values))
                self.commands.refuse_missing_right(self.node, right, asked)
        if done.code != 0:
            raise FatalError(
                f"A change in {self.path} on host {service_of(self.node).host} failed: {done.problem}.",
                remedy="Fix the cause, then repeat the step: it continues where it stopped.",
            )

    def _line(self, right: Right, values: dict[str, str]) -> str:
        command = shlex.join(right.command(**values))
        if right == self.rights.write:
            return f"{command} >/dev/null"
        if right == self.rights.digest:
            draft = shlex.quote(f"{self.path}/{values['file']}{DRAFT}")
            is_other = f"echo {draft} >&2; exit {_DIFFERS}"
            return f"sum=$({command} </dev/null) && case $sum in {values['sha256']}*) ;; *) {is_other};; esac"
        return f"{command} </dev/null"

    def _runs(self) -> UserError:
        service = service_of(self.node)
        return UserError(
            f"The directory {self.path} on host {service.host} is in use: {service.unit} runs.",
            remedy="Stop the node first.",
        )


def _is_stopped(node: NodeSpec) -> str:
    """A command of the login shell that ends the line with an exit code of its own if systemd has a process, or is
    about to start one again."""
    unit = shlex.quote(service_of(node).unit)
    pid, state = (f"$(systemctl show --property={name} --value {unit})" for name in ("MainPID", "ActiveState"))
    down = f'case "{state}" in inactive|failed) ;; *) false;; esac'
    return f'{{ {{ test "{pid}" = 0 && {down}; }} || exit {_RUNS}; }}'


def limit_sink(sink: Callable[[bytes], object], node: NodeSpec, path: str, size: int) -> Callable[[bytes], object]:
    """Return the sink of a file that was listed with `size` bytes. It raises RefusedError for more than it can grow."""
    most, received = size + GROWTH, 0

    def write(data: bytes) -> None:
        nonlocal received
        received += len(data)
        if received > most:
            raise RefusedError(
                f"{path} on host {service_of(node).host} was listed with {size_text(size)}, and the host sent more "
                f"than {size_text(most)}.",
                remedy="Check the host and the file, then repeat the step.",
            )
        sink(data)

    return write


def transfer_s(size: int) -> float:
    """Return the seconds in which so many bytes must be transferred."""
    return COMMAND_S + size / _BYTES_S
