"""Nodes as processes of this machine, for the demo, the tests and a cluster on a single host.

The home of a node (NodeSpec.directory) contains:

    server.properties   its configuration; `server.properties.<release>` is the one before a change of release
    release             the installed release, the one that the next start runs
    jvm.options         Java options, one a line (optional)
    log4j.properties or log4j2.yaml, logs/server.log, logs/stdout.log, data/
    starts.jsonl        one line for each real start
    configuration.json  the newest change of server.properties with a change of release
    claims/             the claims of runs (claim_files.py)

Invariants:
1. Which process is the node's is observed, never only remembered: it is the Java process whose last argument is the
   node's server.properties. A start that was killed before it wrote its record is found, and its record caught up.
2. start, stop and install hold the home's lock, so that of two starts at once one finds the other's process.
3. Nothing is started or installed over a living process; only its id ends it.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import socket
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import psutil

from kafka_rollout.base.errors import FatalError, RolloutError, TransientError, UserError
from kafka_rollout.base.internal_topics import METADATA_LOG
from kafka_rollout.base.lease import Fence, unfenced
from kafka_rollout.base.system.files import (
    check_readable,
    open_below,
    open_regular,
    read_if_exists,
    read_regular,
    reading,
    tail_of,
    write_whole,
    writing_whole,
)
from kafka_rollout.base.system.free_ports import host_and_port
from kafka_rollout.base.system.sessions import child_environment, start_session, wait_for_exit
from kafka_rollout.base.time_limits import KILL_S, STOP_UNDER_WAY_S
from kafka_rollout.formats.files import server_properties
from kafka_rollout.formats.log_files import log_directory
from kafka_rollout.model.claims import Claim, Claims
from kafka_rollout.model.host_state import DirectoryFormat, Installation, StartFile, StartFileKind, StartRecord
from kafka_rollout.model.log_directories import LogDirectory, log_directories, metadata_directory
from kafka_rollout.model.node_log import LogPart
from kafka_rollout.model.plan import ConfigChange, changed_lines
from kafka_rollout.model.starts import LOGIN_FILE, MAIN_CLASS, ClassPlaces, NamedFile, PluginClass, login_sections
from kafka_rollout.model.state import CheckpointFile, ProcessState
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.nodes.runtimes.claim_files import CLOSED, OPEN, dump, join_claims, name_of
from kafka_rollout.nodes.runtimes.log_files import (
    BYTES_BEFORE,
    MOST_BYTES,
    NO_FILE,
    LogPlace,
    Reader,
    end_of,
    log_part,
    parse_place,
    read_on,
)
from kafka_rollout.nodes.runtimes.properties import (
    WrittenConfiguration,
    add_start,
    checkpoint_files,
    configuration_for,
    find_start,
    load_record,
    parse_starts,
)
from kafka_rollout.nodes.runtimes.start_files import all_start_files
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jvm.java import java_binary, java_version, refused_options
from kafka_rollout.releases.jvm.jvm import class_path

if TYPE_CHECKING:
    from kafka_rollout.releases.jars.cache import Agents

JVM_OPTIONS = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_POLL_S = 0.1
_EXEC_S = 0.05
_STARTS, _WRITTEN, _CLAIMS = "starts.jsonl", "configuration.json", "claims"
_LOG4J = """\
log4j.rootLogger=INFO, file
log4j.appender.file=org.apache.log4j.RollingFileAppender
log4j.appender.file.File={log}
log4j.appender.file.MaxFileSize=20MB
log4j.appender.file.MaxBackupIndex=3
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.org.apache.zookeeper=WARN
"""

_LOG4J2 = """\
Configuration:
  status: warn
  Appenders:
    RollingFile:
      name: file
      fileName: "{log}"
      filePattern: "{log}.%i"
      PatternLayout:
        pattern: "[%d] %p %m (%c)%n"
      SizeBasedTriggeringPolicy:
        size: 20MB
      DefaultRolloverStrategy:
        max: 3
  Loggers:
    Root:
      level: INFO
      AppenderRef:
        ref: file
"""


class ReleaseJars(Protocol):
    """The part of the release cache that the runtime uses. `include`: the project's include folder. `plugins`: the
    folder with the operator's jars of plugins."""

    @property
    def include(self) -> Path: ...
    @property
    def plugins(self) -> Path | None: ...
    def libs(self, release: Release) -> Path: ...
    def agents(self) -> Agents: ...


@dataclass(frozen=True, slots=True)
class LocalProcessRuntime:
    """NodeRuntime of local processes."""

    cluster: ClusterSpec
    cache: ReleaseJars
    fence: Fence = unfenced

    def process(self, node: NodeSpec) -> ProcessState:
        home = _home(node)
        installed = _read_release(home)
        if (found := _find(home)) is None:
            return ProcessState(pid=None, installed=installed, claims=_read_claims(home))
        return ProcessState(
            pid=found.pid, started_at=_start_time(found), installed=installed, claims=_read_claims(home)
        )

    def host(
        self,
        node: NodeSpec,
        releases: Sequence[Release],
        *,
        changes: Sequence[ConfigChange] = (),
        restarts: bool = False,
        returns: bool = False,
    ) -> None:
        """Nothing: releases come from the cache, and this user owns the files."""

    def installation(self, node: NodeSpec) -> Installation:
        return Installation()

    def claim(self, node: NodeSpec, claim: Claim) -> Claims:
        home = _home(node)
        with _lock(home):
            self.fence()
            (home / _CLAIMS).mkdir(exist_ok=True)
            write_whole(home / _CLAIMS / name_of(claim), dump(claim), mode=0o644)
        return _read_claims(home)

    def end_claims(self, node: NodeSpec, claims: Sequence[Claim], *, changed: bool) -> None:
        home = _home(node)
        *others, newest = sorted(claims, key=lambda one: one.at)
        with _lock(home):
            self.fence()
            if changed:
                (home / _CLAIMS / name_of(newest)).replace(home / _CLAIMS / CLOSED)
            for one in others if changed else claims:
                (home / _CLAIMS / name_of(one)).unlink(missing_ok=True)

    def bring(self, node: NodeSpec, release: Release, *, back: Release | None = None) -> bool:
        self.cache.libs(release)
        return False  # its start reads nothing that the site has written into the folder of a release

    def prepare_stop(self, node: NodeSpec) -> None:
        """Nothing: a node of this machine has no commands of the operator."""

    def stop(self, node: NodeSpec, *, deadline_s: float, force: bool = False) -> None:
        """SIGTERM, which is Kafka's controlled shutdown; with `force`, SIGKILL by process id after `deadline_s`."""
        home = _home(node)
        with _lock(home):
            process = _find(home)
            if process is None:
                return
            self.fence()
            _send(process, signal.SIGTERM)
            if not wait_for_exit([process], deadline_s):
                return
            if not force:
                raise FatalError(
                    f"Node {node.name} (process {process.pid}) is still shutting down after {deadline_s:.0f} s.",
                    remedy="Read its log. The process was not killed and continues its shutdown. Repeat the step "
                    "later, or use retry, which kills it.",
                )
            self.fence()
            _send(process, signal.SIGKILL)
            if wait_for_exit([process], KILL_S):
                raise FatalError(
                    f"Process {process.pid} of node {node.name} does not exit after SIGKILL.",
                    remedy="Check the machine: a process in uninterruptible sleep usually waits for its disk.",
                )

    def install(
        self,
        node: NodeSpec,
        release: Release,
        changes: Sequence[ConfigChange] = (),
        *,
        held: Sequence[str] = (),
    ) -> str:
        """Set the configuration lines of this node and release. Those of another release stay."""
        home = _home(node)
        self.cache.libs(release)  # fetches missing jars before any change
        with _lock(home):
            if (running := _find(home)) is not None:
                raise FatalError(
                    f"Node {node.name} still runs as process {running.pid}, so nothing was installed.",
                    remedy="Stop the node first.",
                )
            lines = changed_lines(node, release, changes)
            config = home / "server.properties"
            before = _read_config(home, node)
            written = load_record(WrittenConfiguration, read_if_exists(home / _WRITTEN) or b"")
            copy = home / f"server.properties.{release}"
            after = configuration_for(before, release, lines, written=written, read_copy=lambda: read_if_exists(copy))
            previous = _read_release(home)
            self.fence()
            if previous is not None and previous != release:
                write_whole(home / f"server.properties.{previous}", before, like=config)
            if after != before:
                change = WrittenConfiguration(
                    left=previous or release,
                    installed=release,
                    written=sha256(after).hexdigest(),
                    copied=sha256(before).hexdigest(),
                )
                self.fence()
                _replace(home / _WRITTEN, change.dump())
                write_whole(config, after, like=config)
            logging_file, text = _logging_configuration(release, home)
            _replace(logging_file, text)
            # Written last, so that the files of this release are complete.
            self.fence()
            _replace(home / "release", f"{release}\n")
        return ""

    def start(self, node: NodeSpec) -> None:
        home = _home(node)
        release = _read_release(home)
        if release is None:
            raise FatalError(f"No release is installed for node {node.name}.", remedy=f"Install one in {home} first.")
        command = self._command(node, home, release)
        with _lock(home):
            running, log, output = _find(home), "", ""
            if running is None:
                log, output = (str(_end_of(path)) for path in _logs(home))
                self.fence()
                running = _spawn(command, home)
            _record_start(home, running, release, log, output)

    def finish_start(self, node: NodeSpec) -> None:
        """Nothing, as in `prepare_stop`."""

    def short_timeouts(self) -> AbstractContextManager[None]:
        return nullcontext()

    def starts(self, node: NodeSpec) -> tuple[StartRecord, ...]:
        return parse_starts(read_if_exists(_home(node) / _STARTS) or b"")

    def log_tail(self, node: NodeSpec, lines: int = 40, *, own: bool = False) -> tuple[str, ...]:
        """The last lines of server.log; the output of the JVM if it exited before it created server.log."""
        log, output = _logs(_home(node))
        if not own:
            return tail_of(log, lines) or tail_of(output, lines)
        started = self._last_start(node)
        if started is None:
            return ()
        of_process = _lines_since(log, started.log_place) or _lines_since(output, started.output_place)
        return of_process[-lines:]

    def process_log(self, node: NodeSpec, after: str = "") -> LogPart | None:
        started = self._last_start(node)
        process = _find(_home(node))
        if started is None and process is None:
            return None
        pid = process.pid if process is not None else started.pid if started is not None else 0
        started_at = (
            _start_time(process) if process is not None else started.started_at if started is not None else None
        )
        return log_part(pid, started_at, started, after, _reader_of(_logs(_home(node))[0]))

    def _last_start(self, node: NodeSpec) -> StartRecord | None:
        process = _find(_home(node))
        pid, at = (None, None) if process is None else (process.pid, _start_time(process))
        return find_start(self.starts(node), pid, at)

    def java_version(self, node: NodeSpec, releases: Sequence[Release]) -> int:
        binary = java_binary()
        version = java_version(binary)
        if version is None:
            raise FatalError(f"{binary} of {node.name} does not run.", remedy="Set JAVA_HOME to a Java installation.")
        return version

    def jvm_arguments(self, node: NodeSpec, release: Release) -> tuple[str, ...]:
        """Those of jvm.options, which no release brings."""
        return self._options(node)

    def _options(self, node: NodeSpec) -> tuple[str, ...]:
        content = read_if_exists(_home(node) / "jvm.options")
        return JVM_OPTIONS if content is None else tuple(content.decode().split())

    def jvm_problems(self, node: NodeSpec, releases: Sequence[Release]) -> tuple[str, ...]:
        why = refused_options(java_binary(), self._options(node))
        return (why,) if why else ()

    def unresolved_names(self, node: NodeSpec, names: Sequence[str]) -> tuple[str, ...]:
        return tuple(name for name in names if not _can_resolve(name))

    def named_files(self, node: NodeSpec, files: Mapping[str, str]) -> tuple[NamedFile, ...]:
        return tuple(_named_file(setting, path, _home(node) / path) for setting, path in files.items())

    def find_classes(self, node: NodeSpec, release: Release, classes: Sequence[PluginClass]) -> ClassPlaces:
        """Its class path is the one with which this process has already searched, apart from a plugin's own."""
        found: dict[str, tuple[str, ...]] = {}
        for one in classes:
            jars = [jar for part in one.class_path.split(":") if part for jar in _jars_of(_home(node) / part)]
            if own := tuple(str(jar) for jar in jars if _has_class(jar, one.name)):
                found[one.name] = own
        return ClassPlaces(folder=str(self.cache.plugins or ""), jars=found)

    def config(self, node: NodeSpec) -> Mapping[str, str]:
        return server_properties.parse(_read_config(_home(node), node))

    def start_files(self, node: NodeSpec, config: Mapping[str, str]) -> tuple[StartFile, ...]:
        """Without jars, which come from the cache."""
        home = _home(node)
        named = [(StartFileKind.CONFIGURATION, "server.properties"), (StartFileKind.JVM, "jvm.options")]
        named += all_start_files(config, self._options(node))
        found = []
        for kind, name in dict.fromkeys(named):
            with suppress(FileNotFoundError):
                found.append(StartFile(path=str(home / name), kind=kind, changed_at=_changed_at(home / name)))
        return tuple(found)

    def checkpoints(self, node: NodeSpec) -> tuple[CheckpointFile, ...]:
        directory = self.metadata_log_dir(node)
        found = []
        for path in (directory / METADATA_LOG).glob("*.checkpoint") if directory is not None else ():
            with suppress(FileNotFoundError):  # Kafka can remove old ones at any time
                status = path.stat()
                found.append((str(path), status.st_size, status.st_mtime))
        return checkpoint_files(node, found)

    def metadata_log_dir(self, node: NodeSpec) -> Path | None:
        directory = metadata_directory(self.config(node))
        return None if directory is None else _home(node) / directory

    def log_directories(self, node: NodeSpec) -> Mapping[str, str]:
        return server_properties.directory_ids(
            self.config(node), lambda path: server_properties.read_directory_id(_home(node) / path)
        )

    def directory_formats(self, node: NodeSpec, config: Mapping[str, str]) -> Mapping[str, DirectoryFormat] | None:
        return server_properties.directory_formats(
            config, lambda path: server_properties.local_format(_home(node) / path)
        )

    def log_folders(self, node: NodeSpec, config: Mapping[str, str]) -> Mapping[str, LogDirectory]:
        return {path: log_directory(_list_folders(_home(node) / path)) for path in log_directories(config)}

    def copy_checkpoint(self, checkpoint: CheckpointFile, to: Path) -> None:
        """With mode 0600 from the first byte on: a snapshot contains verifiers of SCRAM credentials."""
        source = os.fdopen(open_regular(Path(checkpoint.path)), "rb")
        with source, writing_whole(to, mode=0o600) as target:
            shutil.copyfileobj(source, target, 1 << 20)

    def _command(self, node: NodeSpec, home: Path, release: Release) -> list[str]:
        options = list(self._options(node))
        metrics = self.cache.include / "metrics"
        if node.prometheus_url:
            host, port = host_and_port(node.prometheus_url, node.name)
            options.append(
                f"-javaagent:{self.cache.agents().jmx_exporter}={host}:{port}:{metrics / 'jmx_exporter.yaml'}"
            )
        if node.jolokia_url:
            host, port = host_and_port(node.jolokia_url, node.name)
            policy = (metrics / "jolokia_access.xml").as_uri()
            options.append(
                f"-javaagent:{self.cache.agents().jolokia}"
                f"=host={host},port={port},discoveryEnabled=false,policyLocation={policy}"
            )
        logging_file, _ = _logging_configuration(release, home)
        name = "log4j2.configurationFile" if logging_file.suffix == ".yaml" else "log4j.configuration"
        options.append(f"-D{name}={logging_file.as_uri()}")
        jars = class_path(self.cache.libs(release), self.cache.plugins)
        return [str(java_binary()), *options, "-cp", jars, MAIN_CLASS, str(home / "server.properties")]


def _list_folders(directory: Path) -> Iterator[tuple[str, str, bool]]:
    """Yield what `log_directory` needs. A folder or file that disappears is left out."""
    with reading(directory):
        for folder in os.scandir(directory) if directory.exists() else ():
            if not folder.is_dir():
                continue
            is_readable = os.access(folder.path, os.R_OK)
            yield folder.name, "", is_readable
            with suppress(FileNotFoundError):
                for entry in os.scandir(folder.path) if is_readable else ():
                    if entry.is_file():
                        yield folder.name, entry.name, os.access(entry.path, os.R_OK)


def _read_claims(home: Path) -> Claims:
    """Read the open ones first: one that is closed at the same time is then seen as the closed one."""
    folder = home / _CLAIMS
    try:
        names = [name for name in os.listdir(folder) if fnmatch(name, OPEN)]
        opened = [content for name in names if (content := read_if_exists(folder / name)) is not None]
        return join_claims(opened, read_if_exists(folder / CLOSED))
    except FileNotFoundError:
        return Claims()
    except (OSError, RolloutError) as error:
        return Claims(problem=f"{folder}: {error}")


def _named_file(setting: str, path: str, here: Path) -> NamedFile:
    try:
        changed_at = here.stat().st_ctime
        content = read_regular(here).decode(errors="replace") if setting == LOGIN_FILE else ""
        check_readable(here)
    except FileNotFoundError:
        return NamedFile(setting=setting, path=path, readable_at=str(here), is_absent=True)
    except UserError as error:
        return NamedFile(setting=setting, path=path, problem=error.sentence.removesuffix("."))
    except OSError as error:
        return NamedFile(setting=setting, path=path, problem=error.strerror or type(error).__name__)
    modules = tuple(login_sections(content))
    return NamedFile(setting=setting, path=path, readable_at=str(here), changed_at=changed_at, login_modules=modules)


def _jars_of(part: Path) -> Iterator[Path]:
    """Yield the jars of an entry of a class path."""
    yield from part.parent.glob("*.jar") if part.name == "*" else (part,)


def _can_resolve(name: str) -> bool:
    try:
        socket.getaddrinfo(name, None)
    except (socket.gaierror, UnicodeError):
        return False
    return True


def _has_class(jar: Path, name: str) -> bool:
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(jar) as archive:
        return f"{name.replace('.', '/')}.class" in archive.namelist()
    return False


def node_processes(below: Path) -> dict[Path, psutil.Process]:
    """Path of server.properties → process of the running nodes with this file below a folder."""
    folder = below.resolve()
    return {path: process for path, process in _all_nodes() if path.is_relative_to(folder)}


def end_processes(processes: Sequence[psutil.Process], *, deadline_s: float) -> None:
    """Send SIGTERM to all, and SIGKILL to those that are left after `deadline_s` seconds."""
    for process in processes:
        _send(process, signal.SIGTERM)
    left = wait_for_exit(processes, deadline_s)
    for process in left:
        _send(process, signal.SIGKILL)
    wait_for_exit(left, KILL_S)


def _home(node: NodeSpec) -> Path:
    if node.directory is None:
        raise UserError(f"Node {node.name} has no directory in the inventory.", remedy="Add its home folder.")
    return Path(node.directory).resolve()


@contextmanager
def _lock(home: Path, within_s: float = STOP_UNDER_WAY_S) -> Iterator[None]:
    """One change of the node at a time; the kernel releases the lock when its holder exits.

    Raises TransientError if another process holds it for longer than a stop takes: a thread that waits for the kernel
    ends with no time limit, and with no Ctrl-C.
    """
    if not home.is_dir():
        raise UserError(f"The node's home {home} does not exist.", remedy="Correct the directory in the inventory.")
    with os.fdopen(open_below(home, ".lock", flags=os.O_RDWR | os.O_CREAT), "r+b") as file:
        give_up = time.monotonic() + within_s
        while not _is_locked(file):
            if time.monotonic() > give_up:
                raise TransientError(
                    f"Another process holds {home / '.lock'} for {within_s:.0f} s.",
                    remedy=f"End it, if it hangs: fuser {shlex.quote(str(home / '.lock'))} names it.",
                )
            time.sleep(0.05)
        yield


def _is_locked(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _all_nodes() -> Iterator[tuple[Path, psutil.Process]]:
    for process in psutil.process_iter():
        if (path := _properties_of(process)) is not None:
            yield path, process


def _properties_of(process: psutil.Process) -> Path | None:
    """Return the server.properties of a node's process; None for any other process."""
    with suppress(psutil.Error):  # it exited, is a zombie, or is not readable for this user
        command = process.cmdline()
        if len(command) > 2 and command[-2] == MAIN_CLASS and not _is_of_another_namespace(process.pid):
            return Path(command[-1])
    return None


def _is_of_another_namespace(pid: int) -> bool:
    """Return whether a process is seen in another process namespace: the path in its command line is that of a file in
    a container."""
    with suppress(OSError):  # of another user: it is found, and the kernel refuses a signal
        return Path(f"/proc/{pid}/ns/pid").stat().st_ino != Path("/proc/self/ns/pid").stat().st_ino
    return False


# server.properties → process that was found last. A look at every process of the machine takes milliseconds.
_found: dict[Path, psutil.Process] = {}


def _find(home: Path) -> psutil.Process | None:
    """Look at the process that was found last, then at every process of the machine.

    The latter twice: a `java` that is a wrapper script has no command line while it executes the real one.
    """
    properties = home / "server.properties"
    last = _found.get(properties)
    if last is not None and last.is_running() and _properties_of(last) == properties:  # its id can be reused
        return last
    for pause_s in (_EXEC_S, 0.0):
        for path, process in _all_nodes():
            if path == properties:
                _found[properties] = process
                return process
        time.sleep(pause_s)
    _found.pop(properties, None)
    return None


def _start_time(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return process.create_time()
    return time.time()


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):  # psutil compares the start time: a reused id is never hit
        process.send_signal(number)


def _spawn(command: Sequence[str], home: Path) -> psutil.Process:
    logs = home / "logs"
    logs.mkdir(exist_ok=True)
    started = start_session(command, logs / "stdout.log", environment=child_environment(), cwd=home, within=home)
    return psutil.Process(started.pid)


def _logs(home: Path) -> tuple[Path, Path]:
    """The log of the node, and what its JVM prints."""
    return home / "logs" / "server.log", home / "logs" / "stdout.log"


def _reader_of(path: Path) -> Reader:
    def read(offset: int) -> tuple[int, bytes] | None:
        try:
            file = os.fdopen(open_regular(path), "rb")
        except FileNotFoundError:
            return None
        with file:
            file.seek(offset)
            return os.fstat(file.fileno()).st_ino, file.read(BYTES_BEFORE + MOST_BYTES)

    return read


def _end_of(path: Path) -> LogPlace:
    try:
        file = os.fdopen(open_regular(path), "rb")
    except FileNotFoundError:
        return NO_FILE
    with file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - BYTES_BEFORE))
        return end_of(os.fstat(file.fileno()).st_ino, size, file.read())


def _lines_since(path: Path, place: str) -> tuple[str, ...]:
    found = parse_place(place)
    return () if found is None else read_on(found, _reader_of(path))[0]


def _changed_at(path: Path) -> float | None:
    """A file that was moved to its place, or copied with its times, is as new as its inode."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise
    except OSError:
        return None
    return max(status.st_mtime, status.st_ctime)


def _record_start(home: Path, process: psutil.Process, release: Release, log: str = "", output: str = "") -> None:
    """Record the start once per process, also if an earlier call was killed before its record."""
    start = StartRecord(
        release=release, started_at=_start_time(process), pid=process.pid, log_place=log, output_place=output
    )
    content = add_start(read_if_exists(home / _STARTS) or b"", start)
    if content is not None:
        write_whole(home / _STARTS, content, mode=0o644)


def _read_release(home: Path) -> Release | None:
    content = read_if_exists(home / "release")
    return None if content is None else Release.parse(content.decode())


def _replace(path: Path, text: str) -> None:
    """Write a file with mode 0644, or with the mode and owner of the existing file."""
    write_whole(path, text.encode(), mode=0o644, like=path if path.exists() else None)


def _read_config(home: Path, node: NodeSpec) -> bytes:
    try:
        with reading(config := home / "server.properties"):
            return read_regular(config)
    except FileNotFoundError:
        raise UserError(
            f"Node {node.name} has no server.properties in {home}.", remedy="Correct the inventory's directory."
        ) from None


def _logging_configuration(release: Release, home: Path) -> tuple[Path, str]:
    """The file and its text, without which the release logs nothing. Releases from 4.0 on log through log4j2 (KIP-653),
    those before through reload4j."""
    log = home / "logs" / "server.log"
    if release.major >= 4:
        return home / "log4j2.yaml", _LOG4J2.format(log=log)
    return home / "log4j.properties", _LOG4J.format(log=log)
