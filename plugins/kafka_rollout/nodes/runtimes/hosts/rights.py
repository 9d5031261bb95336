"""The commands that the runtime runs through `sudo -n`, and the sudoers file that permits them and no others.

A command is run as the node's user if it reads, or if it changes the metadata log, which belongs to this user. It is
run as root if it changes the node. Paths come from the inventory and from the node's configuration. The text of a
sudoers file follows sudoers(5): arguments with a placeholder are one regular expression (sudo 1.9.10 or later).

No right makes the SSH user root: root gets no content that it executes, and writes only into folders that nobody else
can change, which a plan checks (planning/findings/host_paths.py). An archive is unpacked by the SSH user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_rollout.base.internal_topics import COORDINATOR_TOPICS, METADATA_LOG
from kafka_rollout.model.topology import NodeSpec, ServiceSpec

_ROOT = "root"
_BIN = "/usr/bin"
_NAME = "[a-z0-9][A-Za-z0-9_.-]*"
_BACKUP = "kafka-rollout-[a-z0-9-]+"
_CHANGED = rf"bootstrap\.checkpoint|{METADATA_LOG}/({_BACKUP}/)?{_NAME}"
_PLACEHOLDERS = {
    "{pid}": "[0-9]+",
    "{release}": r"[0-9]+\.[0-9]+\.[0-9]+",
    "{version}": r"[0-9]+\.[0-9]+\.[0-9]+",
    "{lines}": "[0-9]+",
    "{file}": rf"(meta\.properties|{_CHANGED})",
    "{to}": f"({_CHANGED})",
    "{backup}": _BACKUP,
    "{log}": rf"({'|'.join(sorted(COORDINATOR_TOPICS))})-[0-9]+/{_NAME}",
    "{place}": rf"(/(bootstrap\.checkpoint|{METADATA_LOG}(/{_NAME}){{0,2}})(\.kafka-rollout)?)?",
}
# Values of the placeholders, to ask sudo about a right.
EXAMPLE = {
    "pid": 1,
    "release": "0.0.0",
    "version": "0.0.0",
    "lines": 40,
    "file": f"{METADATA_LOG}/quorum-state",
    "to": f"{METADATA_LOG}/quorum-state",
    "backup": "kafka-rollout-install-0",
    "log": "__consumer_offsets-0/00000000000000000000.log",
    "place": f"/{METADATA_LOG}/quorum-state",
}
DRAFT = ".kafka-rollout"  # suffix of a file or link that is renamed when it is complete
_COPY = ("-aT", "--remove-destination")  # follows no link in the place of the copy
# Commands as root of earlier versions, without backslashes.
_FORMER = re.compile(rf"{_BIN}/(tar( |$)|rm \^?-rf |mkdir \^?-m 755 |cp \^?-a |mv \^?-T \S*\[0-9\]\S*{DRAFT} )")


@dataclass(frozen=True, slots=True)
class Right:
    """One command. `program`: a name in /usr/bin, or a path. `arguments` can contain placeholders; `purpose`: the end
    of "the tool cannot …". `versions`: all values of `{version}`; empty: every release."""

    as_user: str
    program: str
    arguments: tuple[str, ...]
    purpose: str
    versions: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        return self.program if self.program.startswith("/") else f"{_BIN}/{self.program}"

    def command(self, **values: object) -> list[str]:
        """Return the words of the command, with values for its placeholders."""
        words = list(self.arguments)
        for name, value in values.items():
            words = [word.replace(f"{{{name}}}", str(value)) for word in words]
        return ["sudo", "-n", "-u", self.as_user, self.path, *words]

    def allowed_command(self, **values: object) -> list[str]:
        """Return the words of a command that succeeds if sudo permits this one; it changes nothing."""
        words = self.command(**values)
        return [*words[:2], "-l", *words[2:]]

    def sudoers(self) -> str:
        """Return the command as sudoers(5) writes it, after `NOPASSWD:`."""
        text = " ".join(self.arguments) or '""'  # without arguments, sudo would permit all of them
        if not any(placeholder in text for placeholder in _PLACEHOLDERS):
            return f"{self.path} " + re.sub(r"([,:=\\])", r"\\\1", text)
        expression = re.escape(text).replace(r"\ ", " ")
        own = {"{version}": f"({'|'.join(map(re.escape, self.versions))})"} if self.versions else {}
        for placeholder, pattern in (_PLACEHOLDERS | own).items():
            expression = expression.replace(re.escape(placeholder), pattern)
        return f"{self.path} ^{expression}$"


@dataclass(frozen=True, slots=True)
class Rights:
    """The commands of one node."""

    service: ServiceSpec

    @property
    def read_configuration(self) -> Right:
        return self._read("cat", (self.service.configuration_file,), "read its configuration")

    @property
    def list_open_files(self) -> Right:
        return self._read("ls", ("-l", "/proc/{pid}/fd"), "see which release its process has loaded")

    @property
    def find_java(self) -> Right:
        return self._read("readlink", ("/proc/{pid}/exe",), "see which Java its process runs")

    def read_directory_id(self, directory: str) -> Right:
        return self._read("cat", (f"{directory}/meta.properties",), "read the ids of its directories")

    @property
    def read_log(self) -> Right | None:
        """None if the log is in the journal, which the SSH user reads as a member of systemd-journal."""
        if self.service.log_file is None:
            return None
        return self._read("tail", ("--lines", "{lines}", self.service.log_file), "read its log")

    @property
    def stop(self) -> Right:
        return self._systemctl("stop", "--no-block", purpose="stop it")

    @property
    def start(self) -> Right:
        return self._systemctl("start", "--no-block", purpose="start it")

    @property
    def forget_failures(self) -> Right:
        return self._systemctl("reset-failed", purpose="start it after failed starts")

    @property
    def kill(self) -> Right:
        return self._systemctl("kill", "--signal=SIGKILL", purpose="kill it when an approver requests it")

    @property
    def mask(self) -> Right:
        return self._systemctl("mask", "--runtime", purpose="prevent its start while its package is installed")

    @property
    def unmask(self) -> Right:
        return self._systemctl("unmask", "--runtime", purpose="permit its start after its package was installed")

    def of_package(self, words: tuple[str, ...]) -> Right:
        """A command of the package in the inventory."""
        versions = tuple(self.service.package.versions.values()) if self.service.package else ()
        return Right(_ROOT, words[0], words[1:], "install its package", versions)

    @property
    def draft_link(self) -> Right:
        words = ("-sfnT", self.service.installation, self.service.symlink + DRAFT)
        return Right(_ROOT, "ln", words, "switch its release")

    @property
    def switch_link(self) -> Right:
        words = ("-T", self.service.symlink + DRAFT, self.service.symlink)
        return Right(_ROOT, "mv", words, "switch its release")

    @property
    def see_paths(self) -> Right:
        """Who can change the files that root writes, and the folders above them."""
        words = ("--format=%f/%u/%U/%n", *changed_paths(self.service))
        return self._read("stat", words, "see who can change the files that a run changes")

    @property
    def read_copy(self) -> Right:
        return self._read("cat", (self.service.configuration_file + ".{release}",), "read a copy of its configuration")

    @property
    def digest(self) -> Right:
        return self._read("sha256sum", (self.service.configuration_file + DRAFT,), "verify its changed configuration")

    @property
    def sync(self) -> Right:
        return self._read("sync", (self.service.configuration_file + DRAFT,), "write its configuration to disk")

    @property
    def back_up(self) -> Right:
        file = self.service.configuration_file
        return self._write("cp", *_COPY, file, f"{file}.{{release}}", purpose="back up its configuration")

    @property
    def draft_configuration(self) -> Right:
        """An empty file would be readable for everybody: the draft has the owner and the mode of the file."""
        file = self.service.configuration_file
        return self._write("cp", *_COPY, file, file + DRAFT)

    @property
    def write_configuration(self) -> Right:
        return self._write("tee", self.service.configuration_file + DRAFT)

    @property
    def switch_configuration(self) -> Right:
        file = self.service.configuration_file
        return self._write("mv", "-T", file + DRAFT, file)

    def all(self, metadata: str, directories: Iterable[str] = ()) -> tuple[Right, ...]:
        """Return every command of the node. `metadata`: its metadata.log.dir. `directories`: its log.dirs."""
        service = self.service
        reads = (
            self.read_configuration,
            self.list_open_files,
            self.find_java,
            self.see_paths,
            *(self.read_directory_id(directory) for directory in directories if directory != metadata),
            *([self.read_log] if self.read_log is not None else []),
        )
        writes = (
            ()
            if service.managed_elsewhere
            else (
                self.read_copy,
                self.back_up,
                self.draft_configuration,
                self.write_configuration,
                self.digest,
                self.sync,
                self.switch_configuration,
            )
        )
        acts = (self.stop, self.start, self.forget_failures, self.kill)
        package = service.package
        switches = (
            (self.draft_link, self.switch_link)
            if package is None
            else (
                self.mask,
                self.unmask,
                *(self.of_package(words) for words in (package.install, package.download, package.repair) if words),
            )
        )
        return (*reads, *acts, *switches, *writes, *MetadataRights(service.user, metadata).all())

    def _read(self, program: str, arguments: tuple[str, ...], purpose: str) -> Right:
        return Right(self.service.user, program, arguments, purpose)

    def _write(self, program: str, *arguments: str, purpose: str = "change its configuration") -> Right:
        """As root, or as the user of the node if the folder of the configuration belongs to this user."""
        service = self.service
        return Right(_ROOT if service.configuration_writer == _ROOT else service.user, program, arguments, purpose)

    def _systemctl(self, *words: str, purpose: str) -> Right:
        return Right(_ROOT, "systemctl", (*words, self.service.unit), purpose)


@dataclass(frozen=True, slots=True)
class MetadataRights:
    """The commands for a node's metadata log, as the node's user. `directory`: its metadata.log.dir."""

    user: str
    directory: str

    @property
    def list(self) -> Right:
        places = (f"{self.directory}/{name}" for name in ("meta.properties", "bootstrap.checkpoint", METADATA_LOG))
        words = (*places, "-maxdepth", "2", "-printf", "%y/%s/%T@/%i%p|")
        return self._right("find", words, "list its metadata log")

    @property
    def read(self) -> Right:
        return self._right("cat", (self._file("file"),), "read its metadata log")

    @property
    def digest(self) -> Right:
        return self._right("sha256sum", (self._file("file") + DRAFT,), "verify a copy in its metadata log")

    @property
    def free(self) -> Right:
        words = ("--output=avail", "--block-size=1", self.directory)
        return self._right("df", words, "see the free space of its metadata log")

    @property
    def copy(self) -> Right:
        return self._change("cp", "-pT", self._file("file"), self._file("to") + DRAFT)

    @property
    def take_rights(self) -> Right:
        """An empty file with the owner and the mode of another one."""
        return self._change("cp", "-pT", "--attributes-only", self._file("file"), self._file("to") + DRAFT)

    @property
    def write(self) -> Right:
        return self._change("tee", self._file("to") + DRAFT)

    @property
    def sync(self) -> Right:
        return self._change("sync", f"{self.directory}{{place}}")

    @property
    def rename(self) -> Right:
        return self._change("mv", "-T", self._file("to") + DRAFT, self._file("to"))

    @property
    def remove(self) -> Right:
        return self._change("rm", "-f", self._file("to"))

    @property
    def make_folder(self) -> Right:
        return self._change("mkdir", "-m", "700", f"{self.directory}/{METADATA_LOG}/{{backup}}")

    @property
    def remove_folder(self) -> Right:
        return self._change("rm", "-r", f"{self.directory}/{METADATA_LOG}/{{backup}}")

    def all(self) -> tuple[Right, ...]:
        reads = (self.list, self.read, self.digest, self.free)
        files = (self.copy, self.take_rights, self.write, self.sync, self.rename, self.remove)
        return (*reads, *files, self.make_folder, self.remove_folder)

    def _file(self, placeholder: str) -> str:
        return f"{self.directory}/{{{placeholder}}}"

    def _right(self, program: str, arguments: tuple[str, ...], purpose: str) -> Right:
        return Right(self.user, program, arguments, purpose)

    def _change(self, program: str, *arguments: str) -> Right:
        return self._right(program, arguments, "change its metadata log")


@dataclass(frozen=True, slots=True)
class RehearsalRights:
    """The commands that copy the files of a node for a rehearsal, as the node's user. `directory`: a log directory.

    A plan does not need them: without them the rehearsal is skipped.
    """

    user: str
    directory: str

    @property
    def list(self) -> Right:
        words = (self.directory, "-mindepth", "1", "-maxdepth", "2", "-printf", "%y/%s/%P|")
        return self._right("find", words, "list the files that a rehearsal copies")

    @property
    def topic_ids(self) -> Right:
        words = ("-rsH", "--include=partition.metadata", "^topic_id:", self.directory)
        return self._right("grep", words, "read the topic ids that a rehearsal copies")

    @property
    def read(self) -> Right:
        return self._right("cat", (f"{self.directory}/{{log}}",), "read the coordinator logs that a rehearsal copies")

    def all(self) -> tuple[Right, ...]:
        return (self.list, self.topic_ids, self.read)

    def _right(self, program: str, arguments: tuple[str, ...], purpose: str) -> Right:
        return Right(self.user, program, arguments, purpose)


def changed_paths(service: ServiceSpec) -> tuple[str, ...]:
    """Return the configuration file, the symlink's folder or the paths in the commands of the package and, with an
    archive, the folder of the releases, each with every folder above."""
    paths = [] if service.managed_elsewhere else [service.configuration_file]
    paths += service.package.root_paths if service.package else [service.symlink.rpartition("/")[0] or "/"]
    if service.archive is not None:
        paths.append(service.release_parent)
    return tuple(dict.fromkeys(path for each in paths for path in _with_parents(each)))


def _with_parents(path: str) -> Iterable[str]:
    yield "/"
    parts = path.strip("/").split("/")
    yield from ("/" + "/".join(parts[: number + 1]) for number in range(len(parts)) if parts[0])


def excess_rights(listed: str, service: ServiceSpec) -> tuple[str, ...]:
    """Return the entries of `sudo --list` with which the SSH user can become root: all commands, the commands of
    earlier versions of this tool, and those that write the configuration as root where the node's user does it."""
    entries = re.findall(r"\(([^)]*)\) (?:[A-Z_]+: )*NOPASSWD: (.*?)(?=\s\([^)]*\) |$)", " ".join(listed.split()))
    return tuple(
        f"({user}) NOPASSWD: {command}"
        for user, commands in entries
        for command in re.split(r", (?=/|ALL$)", commands)
        if user.split(" : ")[0] in (_ROOT, "ALL") and _is_excess(command.replace("\\", ""), service)
    )


def _is_excess(command: str, service: ServiceSpec) -> bool:
    writes = re.match(rf"{_BIN}/(cp|tee|mv) ", command) and f"{service.configuration_file}{DRAFT}" in command
    return bool(
        command == "ALL"
        or _FORMER.match(command)
        or (writes and (service.configuration_writer != _ROOT or service.managed_elsewhere))
    )


def sudoers_file(login: str, rights: Iterable[Right]) -> str:
    """Return the sudoers file for the SSH user `login`; one line for each command."""
    lines = [f"Defaults:{login} !requiretty"]
    lines += dict.fromkeys(f"{login} ALL=({right.as_user}) NOPASSWD: {right.sudoers()}" for right in rights)
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDirectories:
    """Absolute paths. `metadata`: metadata.log.dir of a node. `log_dirs`: its log.dirs."""

    metadata: str
    log_dirs: tuple[str, ...]


def sudoers_files(
    login: str, nodes: Iterable[NodeSpec], directories: Mapping[int, NodeDirectories]
) -> dict[str, list[str]]:
    """Return each different sudoers file of the nodes' hosts → the hosts that need it.

    A host with several nodes needs the commands of all of them. `directories`: by node id.
    """
    by_host: dict[str, list[Right]] = {}
    for node in nodes:
        if node.service is not None:
            own = directories[node.node_id]
            rights = Rights(node.service).all(own.metadata, own.log_dirs)
            by_host.setdefault(node.service.host, []).extend(rights)
            for directory in dict.fromkeys((*own.log_dirs, own.metadata)):
                by_host[node.service.host] += RehearsalRights(node.service.user, directory).all()
    files: dict[str, list[str]] = {}
    for host, needed in by_host.items():
        files.setdefault(sudoers_file(login, needed), []).append(host)
    return files
