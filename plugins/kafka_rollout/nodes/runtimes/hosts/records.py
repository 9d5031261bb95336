"""What a runtime writes on a host: the configuration of a node, and its records in the home folder of the SSH user."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256

from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.kafka.files import server_properties
from kafka_rollout.model.host_state import StartRecord
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes import properties
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands, rights_of, service_of
from kafka_rollout.nodes.runtimes.hosts.directory import MISSING
from kafka_rollout.nodes.runtimes.hosts.rights import DRAFT
from kafka_rollout.nodes.runtimes.hosts.systemd import UnitState
from kafka_rollout.nodes.runtimes.properties import WrittenConfiguration, add_start, load_written, parse_starts
from kafka_rollout.releases.facts import Release


class HostRecords(HostCommands):
    """The files of a node on its host that a change of release reads and writes."""

    __slots__ = ()

    def configuration_for(
        self, node: NodeSpec, release: Release, content: bytes, lines: Mapping[str, str | None]
    ) -> bytes:
        if service_of(node).managed_elsewhere:
            return server_properties.set_properties(content, str(release), lines)
        written = load_written(self._read_record(node, _written(node)))
        return properties.configuration_for(
            content, release, lines, written=written, read_copy=lambda: self._copy_of(node, release)
        )

    def _copy_of(self, node: NodeSpec, release: Release) -> bytes | None:
        done = self.sudo(node, rights_of(node).read_copy, values={"release": release})
        if done.code != 0 and MISSING in done.err:
            return None
        return self.expect(node, rights_of(node).read_copy, done).content

    def write_configuration(self, node: NodeSpec, left: Release, release: Release, before: bytes, after: bytes) -> None:
        """Copy the file, write a draft with its rights, verify the draft on the host, record the change, rename."""
        rights = rights_of(node)
        digest = sha256(after).hexdigest()
        change = WrittenConfiguration(
            left=left,
            installed=release,
            written=digest,
            copied=sha256(before).hexdigest(),
            is_restored=left != release and after == self._copy_of(node, release),
        )
        self.change(node, rights.back_up, release=left)
        self.change(node, rights.draft_configuration)
        self.change(node, rights.write_configuration, text=after)
        if self.act(node, rights.digest).out.split()[:1] != [digest]:
            raise FatalError(
                f"The changed configuration of node {node.name} did not arrive whole on host {service_of(node).host}. "
                "The file of the node was not replaced.",
                remedy="Check the disk of the host, then repeat the step.",
            )
        self.act(node, rights.sync)
        self._write_record(node, _written(node), change.dump().encode())
        self.change(node, rights.switch_configuration)

    def keep_configuration(self, node: NodeSpec, left: Release, release: Release, content: bytes) -> None:
        """Record the file, and copy it to its draft, before a package is installed, which can replace the file."""
        written = load_written(self._read_record(node, _written(node)))
        if written is None or written.written != sha256(content).hexdigest():
            self.write_configuration(node, left, release, content, content)
        self.change(node, rights_of(node).draft_configuration)
        self.act(node, rights_of(node).sync)

    def refuse_replaced_configuration(self, node: NodeSpec, content: bytes) -> None:
        """Raise RefusedError if a call ended while a package was installed, and the file differs from what it kept."""
        rights, service = rights_of(node), service_of(node)
        written = load_written(self._read_record(node, _written(node)))
        if written is None or sha256(content).hexdigest() in (written.written, written.copied):
            return
        done = self.sudo(node, rights.digest)
        self.refuse_missing_right(node, rights.digest, done)
        if done.out.split()[:1] == [written.written]:
            file = service.configuration_file
            raise RefusedError(
                f"{file} on host {service.host} is not the file that the run kept before it installed the package.",
                remedy=f"Compare it with {file}{DRAFT}. Rename that file to {file}, or remove it to use {file} as it "
                "is. Then repeat the step.",
            )

    def is_configuration_kept(self, node: NodeSpec) -> bool:
        """Return whether the copy of `keep_configuration` waits for the end of an installation."""
        right = rights_of(node).digest
        done = self.sudo(node, right)
        if done.code != 0 and MISSING in done.err:
            return False
        return bool(self.expect(node, right, done).out)

    def configuration(self, node: NodeSpec) -> bytes:
        return self.act(node, rights_of(node).read_configuration).content

    def record_start(self, node: NodeSpec, unit: UnitState, release: Release) -> None:
        """Record the newest process once, also if an earlier call was killed before its record."""
        if unit.last_pid is None or unit.started_at is None:
            return
        content = self._read_record(node, _starts(node))
        if any((start.pid, start.started_at) == (unit.last_pid, unit.started_at) for start in parse_starts(content)):
            return
        start = StartRecord(release=release, started_at=unit.started_at, pid=unit.last_pid)
        self._write_record(node, _starts(node), add_start(content, start))

    def recorded_starts(self, node: NodeSpec) -> tuple[StartRecord, ...]:
        return parse_starts(self._read_record(node, _starts(node)))

    def _read_record(self, node: NodeSpec, path: str) -> bytes:
        """Return a record in the home folder of the SSH user; empty without one."""
        done = self.run(node, f"if test -e {path}; then cat {path}; fi")
        if done.code != 0:
            raise TransientError(
                f"{path} in the home folder of the SSH user on host {service_of(node).host} cannot be read: "
                f"{done.problem}.",
                remedy="Check the owner and the rights of the file, then repeat the step.",
            )
        return done.content

    def _write_record(self, node: NodeSpec, path: str, content: bytes) -> None:
        """Replace a record at once: it is whole also after a loss of power."""
        folder, draft = path.rsplit("/", 1)[0], path + DRAFT
        line = f"mkdir -p {folder} && cat > {draft} && sync {draft} && mv -T {draft} {path}"
        done = self.run_fenced(node, line, text=content)
        if done.code != 0:
            raise FatalError(
                f"{path} of node {node.name} cannot be written in the home folder of the SSH user on host "
                f"{service_of(node).host}: {done.problem}.",
                remedy="Make the home folder of the SSH user writable, then repeat the step.",
            )


def _starts(node: NodeSpec) -> str:
    """In the home folder, in which a command starts."""
    return f".kafka-rollout/starts-{service_of(node).unit}.jsonl"


def _written(node: NodeSpec) -> str:
    return f".kafka-rollout/configuration-{service_of(node).unit}.json"
