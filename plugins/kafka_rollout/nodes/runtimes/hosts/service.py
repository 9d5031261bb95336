"""Nodes as systemd units on hosts that are reached by SSH.

Invariants:
1. The process is systemd's (MainPID and its start time), or one that systemd has left in the control group. The
   release is that of the jars which this process has opened, or which its command line names if the kernel hides them.
2. stop, install and start can be repeated after a broken connection: each reads the state of the unit first.
3. A release is switched by the rename of a symlink or by the package manager of the host, a configuration by the
   rename of a file: a host that loses its power has the old or the new one. The owner and the mode of the file stay.
4. The files of the tool on a host are the copies of the configuration before a change of release, next to the
   configuration, and in the home folder of the SSH user the records of starts and of the newest change of the
   configuration, the claims of runs, and the lists of files and of scripts of packages.
5. A value that cannot be read is unknown, and never the one that would allow a stop.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

from kafka_rollout.base.errors import FatalError, RefusedError, TransientError, UserError
from kafka_rollout.base.internal_topics import METADATA_LOG
from kafka_rollout.base.lease import Fence, unfenced
from kafka_rollout.base.system.files import writing_whole
from kafka_rollout.base.time_limits import KILL_S, STOP_S
from kafka_rollout.formats.files import server_properties
from kafka_rollout.formats.log_files import log_directory
from kafka_rollout.model.claims import Claim, Claims
from kafka_rollout.model.host_state import (
    DirectoryFormat,
    Elsewhere,
    HostState,
    Installation,
    PackageProblem,
    StartFile,
    StartRecord,
    how_to_install,
)
from kafka_rollout.model.log_directories import LogDirectory, log_directories, metadata_directory
from kafka_rollout.model.node_log import LogPart, hide_credentials
from kafka_rollout.model.plan import ConfigChange, changed_lines, changes_of_overrides
from kafka_rollout.model.starts import ClassPlaces, NamedFile, PluginClass
from kafka_rollout.model.state import CheckpointFile, ProcessState
from kafka_rollout.model.topology import ClusterSpec, HostCommand, NodeSpec, ServiceSpec
from kafka_rollout.model.unit_stops import find_reached
from kafka_rollout.nodes.runtimes.claim_files import CLOSED, dump, name_of
from kafka_rollout.nodes.runtimes.hosts.closed_paths import refuse_closed_paths
from kafka_rollout.nodes.runtimes.hosts.commands import (
    MISSING,
    RECORDS,
    HostCommands,
    HostDirectory,
    rights_of,
    service_of,
    unusable,
)
from kafka_rollout.nodes.runtimes.hosts.files_at_start import find_jvm_problems, find_node_classes, read_named_files
from kafka_rollout.nodes.runtimes.hosts.installing import (
    install_package,
    installed_release,
    provide,
    read_elsewhere,
    read_held,
    read_link,
    remedy_of_duplicates,
    repair_package,
    why_unavailable,
)
from kafka_rollout.nodes.runtimes.hosts.logs import (
    end_of_log,
    read_file_on,
    read_journal,
    read_journal_on,
    read_log_tail,
    read_own_lines,
)
from kafka_rollout.nodes.runtimes.hosts.names import find_unresolved
from kafka_rollout.nodes.runtimes.hosts.next_java import find_next_java
from kafka_rollout.nodes.runtimes.hosts.open_files import read_open_files
from kafka_rollout.nodes.runtimes.hosts.records import not_recorded, refuse_unwritable_records
from kafka_rollout.nodes.runtimes.hosts.release_folders import (
    ArtifactsOf,
    ReleaseFolder,
    read_release_folders,
)
from kafka_rollout.nodes.runtimes.hosts.rights import DRAFT
from kafka_rollout.nodes.runtimes.hosts.shells import Shell, refused_by_sudo
from kafka_rollout.nodes.runtimes.hosts.unit_state import (
    DOWN,
    UnitState,
    claims_command,
    claims_folder,
    look,
    parse_claims,
    parse_unit,
    read_closed,
    read_host,
    read_java_version,
    read_jvm_arguments,
    read_overrides,
    read_start,
    read_start_files,
    show_command,
)
from kafka_rollout.nodes.runtimes.hosts.unit_stops import read_unit_stop
from kafka_rollout.nodes.runtimes.log_files import log_part
from kafka_rollout.nodes.runtimes.properties import (
    WrittenConfiguration,
    add_start,
    checkpoint_files,
    configuration_for,
    find_start,
    load_record,
    parse_starts,
)
from kafka_rollout.releases.facts import Release

_POLL_S = 0.3
_START_S = 10.0
_PREPARES_S = 600.0  # ExecStartPre=; systemd ends it after TimeoutStartSec, by default 90 s
_MACHINE_FRESH_S = 60.0  # a boot changes it
_OFFER_FRESH_S = 60.0  # a repository can lose a package


def _unknown_artifacts(release: Release) -> frozenset[str]:
    return frozenset()


@dataclass(slots=True)
class SshServiceRuntime(HostCommands):
    """NodeRuntime of systemd units on hosts."""

    cluster: ClusterSpec
    shell: Shell
    identify: Callable[[str], Release | None]
    """Version in the name of a jar → its release."""
    artifacts: ArtifactsOf = _unknown_artifacts
    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    now: Callable[[], float] = time.time
    fence: Fence = unfenced
    uptimes: dict[str, tuple[float, int]] = field(default_factory=dict)
    machines: dict[str, tuple[float, str]] = field(default_factory=dict)
    """Host → when it was read, and UnitState.machine."""
    offers: dict[tuple[int, Release], float] = field(default_factory=dict)
    """Node id, and a release whose package can be installed there → when this was seen."""
    # (node, pid, start) → the version of the process, which cannot change.
    _loaded: dict[tuple[int, int, float | None], str] = field(default_factory=dict)
    # The same of processes that no unfinished installation has started.
    _finished: set[tuple[int, int, float | None]] = field(default_factory=set)

    def process(self, node: NodeSpec) -> ProcessState:
        unit, installed = self._read_unit(node)
        if unit.pid is None:
            return ProcessState(pid=None, installed=installed, restarts=unit.restarts, claims=unit.claims)
        version = self._loaded_version(node, unit)
        return ProcessState(
            pid=unit.pid,
            started_at=unit.started_at,
            installed=installed,
            running=self.identify(version) if version else None,
            version=version,
            restarts=unit.restarts,
            is_stopping=unit.active in ("deactivating", *DOWN),
            is_unfinished=self._is_unfinished(node, unit),
            claims=unit.claims,
        )

    def host(
        self,
        node: NodeSpec,
        releases: Sequence[Release],
        *,
        changes: Sequence[ConfigChange] = (),
        restarts: bool = False,
        returns: bool = False,
    ) -> HostState:
        """Loads packages, and writes and removes a file in the home folder. Changes nothing else. Commands that sudo
        refuses are listed as `sudo --list` reports them."""
        unit, installed = self._read_unit(node)
        read_file = cache(lambda: self._configuration(node))
        # Before the plan: its lines are those of the inventory. Back, it has the values of before.
        planned = changes if returns else (*changes_of_overrides(self.cluster, node, releases), *changes)
        overrides = cache(lambda: read_overrides(self, node))
        elsewhere = None if installed is None else read_elsewhere(self, node, installed)
        back = None if restarts or returns else self._release_to_return_to(node, unit, installed, releases, elsewhere)
        asked = dict.fromkeys((*releases, *(() if back is None else (back,))))
        return read_host(
            self,
            node,
            unit,
            releases,
            installed=installed,
            # A trial refreshes the lists, and without its repository a host could not install what it has loaded then.
            unavailable={} if returns else self._unavailable(node, unit, installed, releases),
            libs=read_release_folders(self, node, asked, self.identify, self.artifacts),
            back=back,
            now=self.now,
            read_config=lambda: {**server_properties.parse(read_file()), **overrides()},
            read_planned=lambda: (
                []
                if restarts
                else [{**file, **overrides()} for file in _planned_files(node, read_file(), releases, planned)]
            ),
            others=self._others_on_machine(node, unit.machine),
            restarts=restarts,
            changes_file=lambda: any(
                self._file_for(node, release, read_file(), planned) != read_file() for release in releases
            ),
            elsewhere=elsewhere,
        )

    def _release_to_return_to(
        self,
        node: NodeSpec,
        unit: UnitState,
        installed: Release | None,
        releases: Sequence[Release],
        elsewhere: Elsewhere | None,
    ) -> Release | None:
        """Return the release that the node runs, whose folder a rollback needs; None if the run does not leave it, if
        the link leads to another folder of it (`elsewhere`), and if it is unknown."""
        running: Release | None = None
        with suppress(RefusedError):  # HOST-RIGHT-MISSING names it
            running = self.identify(self._loaded_version(node, unit))
        back = running or installed
        if not releases or back in releases or (elsewhere is not None and elsewhere.release == back):
            return None
        return back

    def _others_on_machine(self, node: NodeSpec, machine: str) -> dict[int, ServiceSpec]:
        """Return the other nodes of the cluster on the same machine, whatever name their host has in the inventory."""
        others = [one for one in self.cluster.nodes if one.node_id != node.node_id and one.service is not None]
        return {
            one.node_id: service_of(one)
            for one in others
            if service_of(one).host == service_of(node).host or (machine and self._machine(one) == machine)
        }

    def _machine(self, node: NodeSpec) -> str:
        """Return the machine of another node, read in the last minute; empty if its host does not respond, as this
        machine does."""
        host = service_of(node).host
        if self.monotonic() - self.machines.get(host, (float("-inf"), ""))[0] > _MACHINE_FRESH_S:
            with suppress(TransientError, RefusedError, UserError):  # a finding of its own
                self._read_unit(node)
        return self.machines.get(host, (0.0, ""))[1]

    def _unavailable(
        self, node: NodeSpec, unit: UnitState, installed: Release | None, releases: Sequence[Release]
    ) -> Mapping[Release, PackageProblem]:
        """As in HostState, of the releases and of those to which a rollback returns."""
        if service_of(node).package is None or {*releases} <= {installed}:
            return {}
        running = self.identify(self._loaded_version(node, unit))
        return self._try_packages(node, [*releases, *(one for one in (running, installed) if one is not None)])

    def _try_packages(
        self, node: NodeSpec, releases: Sequence[Release], *, returns: bool = False
    ) -> Mapping[Release, PackageProblem]:
        """Return the releases whose package cannot be installed. `returns`: as in `why_unavailable`."""
        asked, now = dict.fromkeys(releases), self.monotonic()
        builds = self.cluster.apache_releases
        found = why_unavailable(self, node, asked, self.identify, builds, returns=returns)
        self.offers |= {(node.node_id, release): now if release not in found else float("-inf") for release in asked}
        return found

    def installation(self, node: NodeSpec) -> Installation:
        return Installation(held=read_held(self, node), link=read_link(self, node))

    def claim(self, node: NodeSpec, claim: Claim) -> Claims:
        unit = service_of(node).unit
        folder, name = claims_folder(unit), name_of(claim)
        draft = f"{folder}/{name}{DRAFT}"
        write = f"mkdir -p {folder} && cat > {draft} && sync {draft} && mv -T {draft} {folder}/{name}"
        done = self.run_fenced(node, write, claims_command(unit), text=dump(claim))
        if done.code != 0:
            raise unusable(
                done,
                f"The claim of node {node.name} cannot be written in the home folder of the SSH user on host "
                f"{service_of(node).host}: {done.problem}.",
                remedy="Make the home folder of the SSH user writable, then repeat the step.",
            )
        return parse_claims(done.out)

    def end_claims(self, node: NodeSpec, claims: Sequence[Claim], *, changed: bool) -> None:
        folder = claims_folder(service_of(node).unit)
        *others, newest = sorted(claims, key=lambda one: one.at)
        removed = others if changed else claims
        lines = [f"mv -T {folder}/{name_of(newest)} {folder}/{CLOSED}"] if changed else []
        lines += [f"rm -f {' '.join(f'{folder}/{name_of(one)}' for one in removed)}"] if removed else []
        done = self.run_fenced(node, *lines)
        if done.code != 0:
            raise unusable(
                done,
                f"The claim of node {node.name} on host {service_of(node).host} cannot be ended: {done.problem}.",
                remedy="Check the home folder of the SSH user there.",
            )

    def bring(self, node: NodeSpec, release: Release, *, back: Release | None = None) -> bool:
        """Also try that the host takes the records of what follows the stop."""
        refuse_unwritable_records(self, node)
        return self._bring(node, release, back=back)

    def _bring(self, node: NodeSpec, release: Release, *, back: Release | None = None) -> bool:
        if service_of(node).package is not None:
            wanted = dict.fromkeys(one for one in (release, back) if one is not None)
            if set(wanted) == {self._read_unit(node)[1]}:
                return False
            since = self.monotonic() - _OFFER_FRESH_S  # the check of the host has just asked, unless this is a rollback
            old = [one for one in wanted if self.offers.get((node.node_id, one), float("-inf")) < since]
            # Before the stop: the package can have left the repository since the plan.
            for problem in self._try_packages(node, old, returns=back is None).values():
                raise RefusedError(f"{problem.sentence} The node was not stopped.", remedy=problem.remedy)
            return False
        folder = self._release_folder(node, release)
        if is_new := not folder.exists:
            provide(self, node, release)
            folder = self._release_folder(node, release)
        if folder.lacks:
            repair = folder.repair or how_to_install(release, folder.path, folder.lacks, "")
            raise RefusedError(
                f"Kafka {release} is not installed on host {service_of(node).host}: {folder.lacks}.",
                remedy=f"{repair} Then repeat the step.",
            )
        return is_new

    def prepare_stop(self, node: NodeSpec) -> None:
        if self.unit(node).pid is not None:
            self._run_commands(node, service_of(node).before_stop, "before_stop")

    def stop(self, node: NodeSpec, *, deadline_s: float, force: bool = False) -> None:
        """`systemctl stop`, which is Kafka's controlled shutdown; with `force`, SIGKILL after `deadline_s`.

        Raises RefusedError if the stop can reach another Kafka of the host, which can have been started since the plan.
        """
        unit = self.unit(node)
        if unit.is_down:
            return
        if not unit.waits_for_restart:  # then systemd ends it without a command
            self._refuse_reaching_stop(node, unit)
        self.change(node, rights_of(node).stop)
        if self._wait(node, lambda now: now.is_down, deadline_s):
            return
        if not force:
            raise FatalError(
                f"Node {node.name} is still shutting down after {deadline_s:.0f} s{_where(self.unit(node))}.",
                remedy="Read its log. The process was not killed and continues its shutdown. Repeat the step later, or "
                "use retry, which kills it.",
            )
        # The process can end just before the signal: then systemd has nothing to kill.
        kill = rights_of(node).kill
        self.refuse_missing_right(node, kill, self.run_fenced(node, shlex.join(kill.command())))
        if not self._wait(node, lambda now: now.is_down, KILL_S):
            raise FatalError(
                f"Unit {service_of(node).unit} on host {service_of(node).host} does not end after SIGKILL.",
                remedy="Check the host: a process in uninterruptible sleep usually waits for its disk.",
            )

    def _refuse_reaching_stop(self, node: NodeSpec, unit: UnitState) -> None:
        service = service_of(node)
        stop = read_unit_stop(self, node, stop=unit.stop_commands, after=unit.after_stop, pid=unit.pid)
        ids = self._others_on_machine(node, unit.machine) if stop.commands or stop.after else {}
        others = [one for one in self.cluster.nodes if one.node_id in ids]
        for reach in find_reached(stop, node, others, unit=service.unit, host=service.host):
            if not reach.is_accepted:
                raise RefusedError(f"{reach.sentence} Node {node.name} was not stopped.", remedy=reach.remedy)

    def install(
        self,
        node: NodeSpec,
        release: Release,
        changes: Sequence[ConfigChange] = (),
        *,
        held: Sequence[str] = (),
    ) -> str:
        """Change the planned lines of the configuration, then switch the symlink or install the package."""
        service = service_of(node)
        unit, installed = self._read_unit(node)
        if unit.waits_for_restart:
            self.stop(node, deadline_s=KILL_S, force=True)
        elif not unit.is_down:
            raise FatalError(
                f"Node {node.name} still runs{_where(unit)}, so nothing was installed.",
                remedy="Stop the node first.",
            )
        before = self._configuration(node)
        if service.package is None:
            self._bring(node, release)
            self._refuse_folder(node)
        elif not service.managed_elsewhere:
            self._refuse_replaced_configuration(node, before)
        after = self._file_for(node, release, before, changes)
        if after != before:
            if service.managed_elsewhere:
                lines = changed_lines(node, release, changes)
                raise TransientError(
                    f"{service.configuration_file} on host {service.host} does not have the lines of {release} yet: "
                    f"{', '.join(sorted(lines))}.",
                    remedy="Change the file with the software that manages it, then repeat the step.",
                )
            self.write_configuration(node, installed or release, release, before, after)
        if service.package is not None:
            return self._install_package(node, installed or release, release, after, held=held)
        if installed != release:
            if not (unit := self.unit(node)).is_down:
                raise FatalError(
                    f"Something on host {service.host} has started node {node.name} since the run stopped it"
                    f"{_where(unit)}, so {service.symlink} was not switched.",
                    remedy="Find what starts it, such as a .path unit or monit, and stop that. Then repeat the step.",
                )
            rights = rights_of(node)
            self.change(node, rights.draft_link, release=release, suffix="")
            self.change(node, rights.switch_link)
        return ""

    def _file_for(self, node: NodeSpec, release: Release, before: bytes, changes: Sequence[ConfigChange]) -> bytes:
        """Return the content that the configuration has on a release. `before`: of now."""
        lines = changed_lines(node, release, changes)
        written = None
        if not service_of(node).managed_elsewhere:
            written = load_record(WrittenConfiguration, self._read_record(node, _written(self.cluster, node)))
        return configuration_for(
            before, release, lines, written=written, read_copy=partial(self._copy_of, node, release)
        )

    def _install_package(
        self, node: NodeSpec, left: Release, release: Release, configuration: bytes, *, held: Sequence[str]
    ) -> str:
        """Install it, then stop a process that it has started, and restore the configuration. Return as `install`.

        In this order, so that the kept configuration shows a process that must not stay (`_is_unfinished`).
        """
        service, rights = service_of(node), rights_of(node)
        if not service.managed_elsewhere:
            self._keep_configuration(node, left, release, configuration)
        config = server_properties.parse(configuration)
        closed = read_closed(self, node, config)
        warning = install_package(self, node, release, held)
        unit, installed = self._read_unit(node)
        if installed is None and (again := repair_package(self, node, release, held)) is not None:
            warning = again
            unit, installed = self._read_unit(node)
        if not unit.is_down:
            self.stop(node, deadline_s=STOP_S)
        if not service.managed_elsewhere:
            self.change(node, rights.switch_configuration)
        elif self._configuration(node) != configuration:
            raise TransientError(
                f"The package of Kafka {release} has changed {service.configuration_file} on host {service.host}.",
                remedy="Restore the file with the software that manages it, then repeat the step.",
            )
        if installed != release:
            raise FatalError(
                f"The package of Kafka {release} was installed on host {service.host}, but the jars in "
                f"{service.release_parent} are those of {installed or 'no known release, or of several'}. The node is "
                "stopped.",
                remedy=f"{'' if installed else remedy_of_duplicates(service)}Correct `versions` or `jars` of the "
                "package, or apache_releases, in the inventory. Then repeat the step.",
            )
        refuse_closed_paths(node, release, closed, read_closed(self, node, config))
        return warning

    def start(self, node: NodeSpec) -> None:
        """Start the unit unless it runs; returns when systemd has started a process, and records it. The release of a
        process that runs is that of its jars; without them, none is recorded. Returns without a
        process if the commands before it fail, or take longer than _PREPARES_S.
        """
        unit, installed = self._read_unit(node)
        if installed is None:
            service = service_of(node)
            if service.package is not None:
                raise FatalError(
                    f"The jars in {service.release_parent} on host {service.host} are those of no known release, or of "
                    "several.",
                    remedy="Install the package of one release there, then repeat the step.",
                )
            raise FatalError(
                f"{service.symlink} on host {service.host} points to no installed release.",
                remedy=f"Make it a link to {service.folder('<release>')}.",
            )
        if unit.is_given_up and not unit.is_down:
            raise TransientError(
                f"Node {node.name} still runs{_where(unit)}, so it was not started.",
                remedy=f"Read its log, and wait until it has ended. If it does not end, run `systemctl kill "
                f"--signal=SIGKILL {service_of(node).unit}` as root on host {service_of(node).host}.",
            )
        place = ""
        release: Release | None = installed
        if unit.pid is not None:
            release = self._release_of_found(node, unit)
        else:
            if unit.masked:  # by a call that ended while it installed the package
                self.change(node, rights_of(node).unmask)
            if unit.active == "failed":
                self.change(node, rights_of(node).forget_failures)
            place = end_of_log(self, node)
            self.change(node, rights_of(node).start)
            before = unit.last_pid, unit.started_at

            def has_begun(now: UnitState) -> bool:
                return now.pid is not None or (now.last_pid, now.started_at) != before

            self._wait(node, has_begun, _START_S)
            self._wait(node, lambda now: has_begun(now) or not now.prepares_start, _PREPARES_S)
            unit = self.unit(node)
            if not has_begun(unit):
                return  # the unit shows the process before: the gate tells that there is none
        if release is not None:
            self._record_start(node, unit, release, place)

    def finish_start(self, node: NodeSpec) -> None:
        if self.unit(node).pid is not None:
            self._run_commands(node, service_of(node).after_start, "after_start")

    def short_timeouts(self) -> AbstractContextManager[None]:
        return self.shell.short_timeouts()

    def starts(self, node: NodeSpec) -> tuple[StartRecord, ...]:
        return parse_starts(self._read_record(node, _starts(self.cluster, node)))

    def log_tail(self, node: NodeSpec, lines: int = 40, *, own: bool = False) -> tuple[str, ...]:
        """The last lines of the log file; without one, those of the unit in the journal."""
        right = rights_of(node).read_log
        if own:
            unit = self.unit(node)
            start = None if right is None else find_start(self.starts(node), unit.last_pid, unit.started_at)
            return read_own_lines(self, node, unit, start, lines)
        if right is None:
            return read_journal(self, node, lines)
        return read_log_tail(self, node, right, lines)

    def process_log(self, node: NodeSpec, after: str = "") -> LogPart | None:
        unit = self.unit(node)
        if unit.last_pid is None:
            return None
        if service_of(node).log_file is None:
            return read_journal_on(self, node, unit, after)
        start = find_start(self.starts(node), unit.last_pid, unit.started_at)
        return log_part(unit.last_pid, unit.started_at, start, after, partial(read_file_on, self, node))

    def java_version(self, node: NodeSpec, releases: Sequence[Release]) -> int:
        pid = self.unit(node).pid
        return read_java_version(self, node, find_next_java(self, node, pid, *read_start(self, node, releases)))

    def jvm_arguments(self, node: NodeSpec, release: Release) -> tuple[str, ...]:
        return read_jvm_arguments(self, node, release)

    def jvm_problems(self, node: NodeSpec, releases: Sequence[Release]) -> tuple[str, ...]:
        return find_jvm_problems(self, node, self.unit(node), releases)

    def unresolved_names(self, node: NodeSpec, names: Sequence[str]) -> tuple[str, ...]:
        return find_unresolved(self, node, names)

    def named_files(self, node: NodeSpec, files: Mapping[str, str]) -> tuple[NamedFile, ...]:
        return read_named_files(self, node, files)

    def find_classes(self, node: NodeSpec, release: Release, classes: Sequence[PluginClass]) -> ClassPlaces:
        return find_node_classes(self, node, self.unit(node), release, classes)

    def config(self, node: NodeSpec) -> Mapping[str, str]:
        return {**server_properties.parse(self._configuration(node)), **read_overrides(self, node)}

    def start_files(self, node: NodeSpec, config: Mapping[str, str]) -> tuple[StartFile, ...]:
        return read_start_files(self, node, config)

    def checkpoints(self, node: NodeSpec) -> tuple[CheckpointFile, ...]:
        directory = self.metadata_log_dir(node)
        entries = () if directory is None else HostDirectory(self, node, str(directory)).entries()
        in_log = (one for one in entries if one.name.rpartition("/")[0] == METADATA_LOG)
        return checkpoint_files(node, ((f"{directory}/{one.name}", one.size, one.modified_at) for one in in_log))

    def copy_checkpoint(self, checkpoint: CheckpointFile, to: Path) -> None:
        """With mode 0600 from the first byte on: a snapshot contains verifiers of SCRAM credentials."""
        node = self.cluster.node(checkpoint.node_id)
        directory = str(Path(checkpoint.path).parents[1])
        name = checkpoint.path.removeprefix(f"{directory}/")
        with writing_whole(to, mode=0o600) as target:
            HostDirectory(self, node, directory).read(name, checkpoint.size, target.write)

    def log_directories(self, node: NodeSpec) -> Mapping[str, str]:
        rights = rights_of(node)

        def read(directory: str) -> bytes | None:
            done = self.sudo(node, rights.read_directory_id(directory))
            return done.content if done.code == 0 else None

        return server_properties.directory_ids(self.config(node), read)

    def log_folders(self, node: NodeSpec, config: Mapping[str, str]) -> Mapping[str, LogDirectory]:
        rights = rights_of(node)

        def read(directory: str) -> LogDirectory:
            listed = self.list_directory(node, rights.list_names(directory), directory)
            return log_directory(
                (name, file, is_readable)
                for kind, _, name, file, is_readable in listed
                if (kind == "f" if file else kind == "d")
            )

        return {directory: read(directory) for directory in log_directories(config)}

    def directory_formats(self, node: NodeSpec, config: Mapping[str, str]) -> Mapping[str, DirectoryFormat] | None:
        """Without bootstrap.checkpoint. A directory that cannot be read, for example because the run adds it and sudo
        refuses it, has a problem."""
        rights = rights_of(node)

        def read(directory: str) -> DirectoryFormat:
            right = rights.read_directory_id(directory)
            done = self.sudo(node, right)
            if done.code == 0:
                return DirectoryFormat(meta=done.content)
            if refused_by_sudo(done):
                return DirectoryFormat(problem=f"sudo refuses ({right.as_user}) NOPASSWD: {right.sudoers()}")
            return DirectoryFormat() if MISSING in done.err else DirectoryFormat(problem=done.problem)

        return server_properties.directory_formats(config, read)

    def metadata_log_dir(self, node: NodeSpec) -> Path | None:
        directory = metadata_directory(self.config(node))
        return None if directory is None else Path(directory)

    def unit(self, node: NodeSpec) -> UnitState:
        """Raises UserError if the host has no such unit, or if Kafka is a child of its main process."""
        return self._read_unit(node)[0]

    def _read_unit(self, node: NodeSpec) -> tuple[UnitState, Release | None]:
        """Return the unit and the release that its next start runs."""
        service, package = service_of(node), service_of(node).package
        where = f"readlink {service.symlink}" if package is None else f"echo {package.jars}/kafka_2.*.jar"
        shown = f"{show_command(service.unit)}; {claims_command(service.unit)}"
        done = self.run(node, f"{shown}; echo Link=$({where})")
        unit = replace(parse_unit(done.out), claims=parse_claims(done.out))
        self.machines[service.host] = self.monotonic(), unit.machine
        if not unit.exists and not (unit.masked and package):
            if unit.load_state == "bad-setting":
                raise UserError(
                    f"systemd cannot read {service.unit} on host {service.host} (LoadState=bad-setting): a line of its "
                    "file or of a drop-in is wrong, so it would not start the unit again.",
                    remedy=f"Run `systemd-analyze verify {service.unit}` there, correct the line that it names "
                    f"(`systemctl cat {service.unit}`), and run `systemctl daemon-reload` as root. A drop-in that sets "
                    "ExecStart= again needs an empty `ExecStart=` before.",
                )
            raise UserError(
                f"Host {service.host} has no unit {service.unit}.", remedy=f"Correct the unit of node {node.name}."
            )
        if unit.name not in ("", service.unit):
            raise UserError(
                f"{service.unit} on host {service.host} is an alias of {unit.name}. The journal has the lines of the "
                "unit under its own name alone, and a mask of the alias does not keep it from starting.",
                remedy=f"Set `unit: {unit.name}` for node {node.name} in the inventory, and print the sudoers file "
                "again.",
            )
        if unit.wrapper:
            raise UserError(
                f"The main process of unit {service.unit} on host {service.host} is {unit.wrapper} (process "
                f"{unit.pid}), and Kafka is a child of it. What the process of a unit reports is then that of "
                f"{unit.wrapper}.",
                remedy=_without_wrapper(unit.wrapper, service, node),
            )
        link = done.out.rpartition("Link=")[2].strip()
        return unit, _release_in(service, link) if package is None else installed_release(link, self.identify)

    def _loaded_version(self, node: NodeSpec, unit: UnitState) -> str:
        """Empty for a process that is too young to have opened the jars, or that has just ended."""
        if unit.pid is None:
            return ""
        key = node.node_id, unit.pid, unit.started_at
        if key not in self._loaded:
            version = read_open_files(self, node, unit.pid, needs_right=True).version
            if not version:
                return ""
            self._loaded[key] = version
        return self._loaded[key]

    def _is_unfinished(self, node: NodeSpec, unit: UnitState) -> bool:
        """Return whether a package has started the process before its installation ended: the kept configuration is
        still there. A node does not run while a run installs."""
        service = service_of(node)
        key = node.node_id, unit.pid or 0, unit.started_at
        if service.package is None or service.managed_elsewhere or key in self._finished:
            return False
        right = rights_of(node).digest
        done = self.sudo(node, right)
        is_missing = done.code != 0 and MISSING in done.err
        is_kept = not is_missing and self.expect(node, right, done).out != ""
        if not is_kept:
            self._finished.add(key)
        return is_kept

    def _release_folder(self, node: NodeSpec, release: Release) -> ReleaseFolder:
        return read_release_folders(self, node, [release], self.identify, self.artifacts)[release]

    def _refuse_folder(self, node: NodeSpec) -> None:
        """Raise before any change if the symlink is not a link."""
        service = service_of(node)
        if "link" not in look(self, node):
            raise UserError(
                f"{service.symlink} on host {service.host} is not a symbolic link.",
                remedy="Replace it by a link to the folder of the installed release, or correct the inventory.",
            )

    def _run_commands(self, node: NodeSpec, commands: Sequence[HostCommand], key: str) -> None:
        for number, one in enumerate(commands, 1):
            done = self.run_foreign(node, one.command, within_s=one.timeout_s)
            if done.code != 0:
                raise FatalError(
                    f"Command {number} of {key} of node {node.name} failed: {hide_credentials(done.problem)}.",
                    remedy="Fix the command or the host, then repeat the step.",
                )

    def _copy_of(self, node: NodeSpec, release: Release) -> bytes | None:
        done = self.sudo(node, rights_of(node).read_copy, release=release)
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
        self._write_record(node, _written(self.cluster, node), change.dump().encode())
        self.change(node, rights.switch_configuration)

    def _keep_configuration(self, node: NodeSpec, left: Release, release: Release, content: bytes) -> None:
        """Record the file, and copy it to its draft, before a package is installed, which can replace the file."""
        written = load_record(WrittenConfiguration, self._read_record(node, _written(self.cluster, node)))
        if written is None or written.written != sha256(content).hexdigest():
            self.write_configuration(node, left, release, content, content)
        self.change(node, rights_of(node).draft_configuration)
        self.act(node, rights_of(node).sync)

    def _refuse_replaced_configuration(self, node: NodeSpec, content: bytes) -> None:
        """Raise RefusedError if a call ended while a package was installed, and the file differs from what it kept."""
        rights, service = rights_of(node), service_of(node)
        written = load_record(WrittenConfiguration, self._read_record(node, _written(self.cluster, node)))
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

    def _configuration(self, node: NodeSpec) -> bytes:
        content = self.act(node, rights_of(node).read_configuration).content
        if not content:
            service = service_of(node)
            raise RefusedError(
                f"{service.configuration_file} on host {service.host} is empty, or is a FIFO or a device.",
                remedy=f"Correct configuration_file of node {node.name} in the inventory, or the file.",
            )
        return content

    def _release_of_found(self, node: NodeSpec, unit: UnitState) -> Release | None:
        """Return the release of a process that this call has not started: the host can have done it before the switch.
        None if the process does not show it in _START_S."""
        deadline = self.monotonic() + _START_S
        while not (version := self._loaded_version(node, unit)) and self.monotonic() < deadline:
            self.sleep(_POLL_S)
        return self.identify(version) if version else None

    def _record_start(self, node: NodeSpec, unit: UnitState, release: Release, place: str) -> None:
        """Record the newest process once, also if an earlier call was killed before its record."""
        if unit.last_pid is None or unit.started_at is None:
            return
        start = StartRecord(release=release, started_at=unit.started_at, pid=unit.last_pid, log_place=place)
        content = add_start(self._read_record(node, _starts(self.cluster, node)), start)
        if content is not None:
            self._write_record(node, _starts(self.cluster, node), content)

    def _read_record(self, node: NodeSpec, path: str) -> bytes:
        """Return a record in the home folder of the SSH user; empty without one."""
        done = self.run(node, f"if test -e {path}; then cat {path}; fi")
        if done.code != 0:
            raise unusable(
                done,
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
            raise not_recorded(node, path, done.problem)

    def _wait(self, node: NodeSpec, ready: Callable[[UnitState], bool], seconds: float) -> bool:
        deadline = self.monotonic() + seconds
        while not ready(self.unit(node)):
            if self.monotonic() >= deadline:
                return False
            self.sleep(_POLL_S)
        return True


def _where(unit: UnitState) -> str:
    """Return how the node runs, as a part of a sentence."""
    if unit.is_given_up:
        return f" in the control group of its unit, which systemd calls {unit.active} ({unit.shown_left})"
    return "" if unit.pid is None else f" as process {unit.pid}"


def _without_wrapper(wrapper: str, service: ServiceSpec, node: NodeSpec) -> str:
    edit = f"(`systemctl edit --full {service.unit}`), and restart node {node.name}"
    if wrapper in ("su", "sudo", "runuser", "setpriv"):
        return f"Set User={service.user} in the unit, and let ExecStart begin with kafka-server-start.sh {edit}."
    if wrapper not in ("sh", "bash", "dash", "ksh", "mksh", "zsh"):  # docker, conmon of a Quadlet, tini, supervisord
        return (
            f"The tool manages Kafka only as the main process of a unit, and not in containers or below {wrapper}. Let "
            f"ExecStart begin with kafka-server-start.sh {edit}."
        )
    return f"Write `exec` before kafka-server-start.sh in ExecStart {edit}."


def _planned_files(
    node: NodeSpec, file: bytes, releases: Sequence[Release], changes: Sequence[ConfigChange]
) -> Iterator[Mapping[str, str]]:
    """Yield the settings in the file of a node on each release. A line of one release stays on those after it."""
    settings: Mapping[str, str] = server_properties.parse(file)
    for release in releases:
        changed = {**settings, **changed_lines(node, release, changes)}
        settings = {name: value for name, value in changed.items() if value is not None}
        yield settings


def _starts(cluster: ClusterSpec, node: NodeSpec) -> str:
    """In the home folder, in which a command starts. Hosts can share it (NFS), so units of one name are not enough."""
    return f"{RECORDS}/starts-{cluster.name}-{node.node_id}.jsonl"


def _written(cluster: ClusterSpec, node: NodeSpec) -> str:
    return f"{RECORDS}/configuration-{cluster.name}-{node.node_id}.json"


def _release_in(service: ServiceSpec, folder: str) -> Release | None:
    """The release in the path of an installation; the link can be relative."""
    expression = re.escape(service.installation.rsplit("/", 1)[-1]).replace(re.escape("{release}"), r"(\d+\.\d+\.\d+)")
    match = re.fullmatch(expression + r"[^/]*", folder.rstrip("/").rsplit("/", 1)[-1])
    return Release.parse(match[1]) if match else None
