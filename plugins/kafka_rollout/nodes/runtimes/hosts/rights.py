"""The commands that the runtime runs through `sudo -n`, and the sudoers file that permits them and no others.

A command is run as the node's user if it reads, or if it changes the metadata log, which belongs to this user. It is
run as root if it changes the node. Paths come from the inventory and from the node's configuration. The text of a
sudoers file follows sudoers(5): arguments with a placeholder are one regular expression (sudo 1.9.10 or later).

No right makes the SSH user root: root gets no content that it executes, and writes only into folders that nobody else
can change, which a plan checks (planning/findings/hosts.py). An archive is unpacked by the SSH user.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_rollout.base.internal_topics import COORDINATOR_TOPICS, METADATA_LOG
from kafka_rollout.formats.log_files import ORDINARY_FILE
from kafka_rollout.model.package_managers import download_again_of, is_apt, names_of, refresh_of
from kafka_rollout.model.topology import SUFFIX, NodeSpec, PackageSpec, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.sudo_defaults import OWN_DEFAULTS, excess_defaults

_ROOT = "root"
_BIN = "/usr/bin"
_NAME = "[a-z0-9][A-Za-z0-9_.-]*"
_BACKUP = "kafka-rollout-[a-z0-9-]+"
_CHANGED = rf"bootstrap\.checkpoint|{METADATA_LOG}/({_BACKUP}/)?{_NAME}"
_PLACEHOLDERS = {
    "{pid}": "[0-9]+",
    "{release}": r"[0-9]+\.[0-9]+\.[0-9]+",
    "{version}": r"[0-9]+\.[0-9]+\.[0-9]+",
    "{suffix}": SUFFIX,
    "{lines}": "[0-9]+",
    "{offset}": "[0-9]+",
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
    "suffix": "",
    "lines": 40,
    "offset": 1,
    "file": f"{METADATA_LOG}/quorum-state",
    "to": f"{METADATA_LOG}/quorum-state",
    "backup": "kafka-rollout-install-0",
    "log": "__consumer_offsets-0/00000000000000000000.log",
    "place": f"/{METADATA_LOG}/quorum-state",
}
FIRST_WITH_EXPRESSIONS = (1, 9, 10)
"""The first sudo that reads `^…$` in arguments as a regular expression (sudoers(5)).

To an older one, `\\-` and `{0,2}` in it are syntax errors (GOTCMND in toke.l): it skips such a line, and before 1.9.3
it refuses every command.
"""
DRAFT = ".kafka-rollout"  # suffix of a file or link that is renamed when it is complete
# What a command reads is that of the file behind a link, as for `cat` and `tail`, which read its content.
_FOLLOW = ("--dereference", "--format=%i/%s/%f")
_COPY = ("-aT", "--remove-destination")  # follows no link in the place of the copy
# Of a log directory, with `-L`: Kafka also loads a partition whose folder is a link. Nothing below the folders of
# partitions is read. A `-` follows what the user cannot read.
_TREE = ("-mindepth", "1", "-maxdepth", "2")
_LISTED = ("-printf", "%y/%s/%P|", "-not", "-readable", "-printf", "-|")


@dataclass(frozen=True, slots=True)
class HostRight:
    """One command."""

    as_user: str
    program: str
    """A name in /usr/bin, or a path. `arguments` can contain placeholders."""
    arguments: tuple[str, ...]
    purpose: str
    """The end of "the tool cannot …"."""
    versions: tuple[str, ...] = ()
    """All values of `{version}`; empty: every release."""

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
        """Return the command as sudoers(5) writes it, after `NOPASSWD:`.

        sudo compares literal arguments as a pattern of the shell, so `*`, `?` and `[` get a backslash. A backslash in
        an argument would need four of them.
        """
        text = " ".join(self.arguments) or '""'  # without arguments, sudo would permit all of them
        if not any(placeholder in text for placeholder in _PLACEHOLDERS):
            return f"{self.path} " + re.sub(r"([,:=\\*?\[\]])", r"\\\1", text)
        expression = re.escape(text).replace(r"\ ", " ")
        own = {"{version}": f"({'|'.join(map(re.escape, self.versions))})"} if self.versions else {}
        for placeholder, pattern in (_PLACEHOLDERS | own).items():
            expression = expression.replace(re.escape(placeholder), pattern)
        return f"{self.path} ^{expression}$"


class HostRights:
    """The commands of one node."""

    def __init__(self, service: ServiceSpec) -> None:
        file, draft, link = service.configuration_file, service.configuration_file + DRAFT, service.symlink + DRAFT
        # As root, or as the user of the node if the folder of the configuration belongs to this user.
        writer = _ROOT if service.configuration_writer == _ROOT else service.user

        def read(purpose: str, program: str, *arguments: str) -> HostRight:
            return HostRight(service.user, program, arguments, purpose)

        def write(program: str, *arguments: str, purpose: str = "change its configuration") -> HostRight:
            return HostRight(writer, program, arguments, purpose)

        def content(purpose: str, path: str) -> HostRight:
            return _content(service.user, purpose, path)

        def systemctl(purpose: str, *words: str) -> HostRight:
            return HostRight(_ROOT, "systemctl", (*words, service.unit), purpose)

        self.service = service
        self.read_configuration = content("read its configuration", file)
        self.list_open_files = read("see which release its process has loaded", "ls", "-l", "/proc/{pid}/fd")
        self.find_java = read("see which Java its process runs", "readlink", "/proc/{pid}/exe")
        # Without a file, the log is in the journal, which the SSH user reads as a member of systemd-journal.
        log = service.log_file
        self.read_log = None if log is None else read("read its log", "tail", "--lines", "{lines}", log)
        # To read what a process has logged since its start, also if the file was rotated.
        self.read_log_on = None if log is None else read("read its log", "tail", "--bytes", "+{offset}", log)
        self.see_log = None if log is None else read("read its log", "stat", *_FOLLOW, log)
        self.stop = systemctl("stop it", "stop", "--no-block")
        self.start = systemctl("start it", "start", "--no-block")
        self.forget_failures = systemctl("start it after failed starts", "reset-failed")
        self.kill = systemctl("kill it when an approver requests it", "kill", "--signal=SIGKILL")
        self.mask = systemctl("prevent its start while its package is installed", "mask", "--runtime")
        self.unmask = systemctl("permit its start after its package was installed", "unmask", "--runtime")
        self.draft_link = HostRight(
            _ROOT, "ln", ("-sfnT", service.installation + "{suffix}", link), "switch its release"
        )
        self.switch_link = HostRight(_ROOT, "mv", ("-T", link, service.symlink), "switch its release")
        # Who can change the files that root writes, and the folders above them.
        paths = changed_paths(service)
        self.see_paths = read("see who can change the files that a run changes", "stat", "--format=%f/%u/%U/%n", *paths)
        flags = ("-d", file, file.rpartition("/")[0] or "/")
        self.see_flags = read("see whether its configuration can be replaced", "lsattr", *flags)
        self.read_copy = content("read a copy of its configuration", f"{file}.{{release}}")
        self.digest = read("verify its changed configuration", "sha256sum", draft)
        self.sync = read("write its configuration to disk", "sync", draft)
        self.back_up = write("cp", *_COPY, file, f"{file}.{{release}}", purpose="back up its configuration")
        # An empty file would be readable for everybody: the draft has the owner and the mode of the file.
        self.draft_configuration = write("cp", *_COPY, file, draft)
        self.write_configuration = write("tee", draft)
        self.switch_configuration = write("mv", "-T", draft, file)

    def read_directory_id(self, directory: str) -> HostRight:
        return _content(self.service.user, "read the ids of its directories", f"{directory}/meta.properties")

    def list_names(self, directory: str) -> HostRight:
        """Lists a log directory without the files that the user can read and whose names every start parses."""
        ordinary = ("-type", "f", "-readable", "-regextype", "posix-extended", "-regex", f".*/{ORDINARY_FILE}", "-o")
        words = ("-L", directory, *_TREE, *ordinary, *_LISTED)
        return HostRight(self.service.user, "find", words, "list the files in its log directories")

    def of_package(self, words: tuple[str, ...]) -> HostRight:
        """A command of the package in the inventory."""
        versions = tuple(self.service.package.versions.values()) if self.service.package else ()
        return HostRight(_ROOT, words[0], words[1:], "install its package", versions)

    def holds(self) -> dict[str, HostRight]:
        """Return the command that holds each package which an installation with apt replaces."""
        names = held_names(self.service)
        return {name: HostRight(_ROOT, "apt-mark", ("hold", name), "hold its package again") for name in names}

    def all(self, metadata: str, directories: Iterable[str] = ()) -> tuple[HostRight, ...]:
        """Return every command of the node. `metadata`: its metadata.log.dir. `directories`: its log.dirs."""
        rights = [self.read_configuration, self.list_open_files, self.find_java, self.see_paths]
        rights += [self.read_directory_id(directory) for directory in directories if directory != metadata]
        rights += [self.list_names(directory) for directory in dict.fromkeys((*directories, metadata))]
        rights += [right for right in (self.read_log, self.read_log_on, self.see_log) if right is not None]
        rights += [self.stop, self.start, self.forget_failures, self.kill]
        if (package := self.service.package) is None:
            rights += [self.draft_link, self.switch_link]
        else:
            rights += [self.mask, self.unmask]
            rights += [self.of_package(words) for words in _commands_of(package) if words]
            rights += self.holds().values()
        if not self.service.managed_elsewhere:
            rights += [self.see_flags, self.read_copy, self.back_up, self.draft_configuration, self.write_configuration]
            rights += [self.digest, self.sync, self.switch_configuration]
        return (*rights, *MetadataRights(self.service.user, metadata).all())


def _content(user: str, purpose: str, path: str) -> HostRight:
    """The command that prints a file. It does not wait for the writer of a FIFO in its place, as `cat` would: it prints
    nothing then, or fails."""
    return HostRight(user, "dd", (f"if={path}", "iflag=nonblock", "bs=1M", "status=none"), purpose)


def _commands_of(package: PackageSpec) -> tuple[tuple[str, ...], ...]:
    trials = (refresh_of(package.install), package.check, package.download, download_again_of(package.install))
    return (*trials, package.install, package.repair)


def held_names(service: ServiceSpec) -> tuple[str, ...]:
    """Return the packages whose hold an installation with apt removes (apt-get(8), --allow-change-held-packages). A
    lock of dnf or zypper blocks an installation instead."""
    package = service.package
    return names_of(package.install) if package is not None and is_apt(package.install) else ()


class MetadataRights:
    """The commands for a node's metadata log, as the node's user. `directory`: its metadata.log.dir."""

    def __init__(self, user: str, directory: str) -> None:
        def read(purpose: str, program: str, *arguments: str) -> HostRight:
            return HostRight(user, program, arguments, purpose)

        def change(program: str, *arguments: str) -> HostRight:
            return HostRight(user, program, arguments, "change its metadata log")

        file, to, log = f"{directory}/{{file}}", f"{directory}/{{to}}", f"{directory}/{METADATA_LOG}"
        places = (f"{directory}/meta.properties", f"{directory}/bootstrap.checkpoint", log)
        listed = ("-maxdepth", "2", "-printf", "%y/%s/%T@/%i%p|")
        self.list = read("list its metadata log", "find", "-H", *places, *listed)
        self.read = _content(user, "read its metadata log", file)
        self.digest = read("verify a copy in its metadata log", "sha256sum", file + DRAFT)
        self.free = read("see the free space of its metadata log", "df", "--output=avail", "--block-size=1", directory)
        self.copy = change("cp", "-pT", file, to + DRAFT)
        # An empty file with the owner and the mode of another one.
        self.take_rights = change("cp", "-pT", "--attributes-only", file, to + DRAFT)
        self.write = change("tee", to + DRAFT)
        self.sync = change("sync", f"{directory}{{place}}")
        self.rename = change("mv", "-T", to + DRAFT, to)
        self.remove = change("rm", "-f", to)
        self.make_folder = change("mkdir", "-m", "700", f"{log}/{{backup}}")
        self.remove_folder = change("rm", "-r", f"{log}/{{backup}}")

    def all(self) -> tuple[HostRight, ...]:
        return tuple(vars(self).values())  # in this order in the sudoers file


class RehearsalRights:
    """The commands that copy the files of a node for a rehearsal, as the node's user. `directory`: a log directory.

    A plan does not need them: without them the rehearsal is skipped.
    """

    def __init__(self, user: str, directory: str) -> None:
        def read(what: str, program: str, *arguments: str) -> HostRight:
            return HostRight(user, program, arguments, f"{what} that a rehearsal copies")

        metadata = ("-mindepth", "2", "-maxdepth", "2", "-name", "partition.metadata", "-type", "f")
        shown = ("-exec", "grep", "-sH", "^topic_id:", "{}", "+")
        self.list_files = read("list the files", "find", "-L", directory, *_TREE, *_LISTED)
        self.topic_ids = read("read the topic ids", "find", "-L", directory, *metadata, *shown)
        self.read = _content(user, "read the coordinator logs that a rehearsal copies", f"{directory}/{{log}}")

    def all(self) -> tuple[HostRight, ...]:
        return tuple(vars(self).values())  # in this order in the sudoers file


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


_ENTRY = re.compile(r"\(([^)]*)\) ((?:[A-Z_]+: )*)(\S.*)")


def excess_rights(listed: str, services: Iterable[ServiceSpec]) -> tuple[str, ...]:
    """Return what `sudo --list` (in the locale C) shows beyond the file that this tool prints for the host.

    These are the entries that can run as root and are not a line of the file, those that cannot be read, and Defaults
    with which a command of root would run programs of the SSH user. `services`: of all nodes of the host.
    """
    rights = [right for service in services for right in HostRights(service).all(_NOWHERE)]
    printed = {f"{right.as_user} NOPASSWD: {right.sudoers()}" for right in rights if right.as_user == _ROOT}
    programs = {right.path for right in rights if right.as_user == _ROOT}
    defaults, bound, entries = _sections(listed)
    found = [*excess_defaults(defaults, bound, programs, _can_be_root)]
    for entry in entries:
        match = _ENTRY.fullmatch(entry)
        if match is None:
            found.append(f"a line that cannot be read: {entry}")
            continue
        users, tags, text = match.groups()
        commands = [f"{users} {tags}{command}" for command in re.split(r"(?<!\\), (?=[/!A-Z])", text)]
        if _can_be_root(users) and not set(commands) <= printed:
            found.append(entry)
    return tuple(found)


_NOWHERE = "/nowhere"  # directories of a node concern its own user only


def _sections(listed: str) -> tuple[str, list[str], list[str]]:
    """Return the Defaults of the user, and one line for each binding of Defaults and each entry: sudo can wrap long
    ones for a terminal."""
    defaults, bound, entries = "", list[str](), list[str]()
    section = ""
    for line in listed.splitlines():
        text = line.strip()
        if line and not line[0].isspace():
            section = line
        elif not text:
            continue
        elif "may run the following commands" in section:
            _append(entries, text, is_new=not line.startswith(" " * 8))
        elif section.startswith("Runas and Command-specific"):
            _append(bound, text, is_new=text.startswith("Defaults"))
        else:
            defaults += f"{text} "
    return defaults, bound, entries


def _append(lines: list[str], text: str, *, is_new: bool) -> None:
    if is_new or not lines:
        lines.append(text)
    else:
        lines[-1] += f" {text}"


def _can_be_root(users: str) -> bool:
    """Return whether a list of users of sudoers(5) can contain root: only plain names and ids of others cannot."""
    names, _, group = (part.strip() for part in users.partition(":"))
    known = re.compile(r"[a-z_][A-Za-z0-9_.-]*\$?|#[1-9][0-9]{0,8}")
    return bool(group) or any(
        name == _ROOT or not known.fullmatch(name) for name in (one.strip() for one in names.split(","))
    )


def sudoers_file(login: str, rights: Iterable[HostRight]) -> str:
    """Return the sudoers file for the SSH user `login`; one line for each command."""
    lines = [f"Defaults:{login} {OWN_DEFAULTS}"]
    lines += dict.fromkeys(f"{login} ALL=({right.as_user}) NOPASSWD: {right.sudoers()}" for right in rights)
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDirectories:
    """Absolute paths."""

    metadata: str
    """metadata.log.dir of a node."""
    log_dirs: tuple[str, ...]
    """Its log.dirs."""


def sudoers_files(
    login: str, nodes: Iterable[NodeSpec], directories: Mapping[int, NodeDirectories]
) -> dict[str, list[str]]:
    """Return each different sudoers file of the nodes' hosts → the hosts that need it.

    A host with several nodes needs the commands of all of them. `directories`: by node id.
    """
    by_host: dict[str, list[HostRight]] = {}
    for node in nodes:
        if node.service is not None:
            own = directories[node.node_id]
            rights = HostRights(node.service).all(own.metadata, own.log_dirs)
            by_host.setdefault(node.service.host, []).extend(rights)
            for directory in dict.fromkeys((*own.log_dirs, own.metadata)):
                by_host[node.service.host] += RehearsalRights(node.service.user, directory).all()
    files: dict[str, list[str]] = {}
    for host, needed in by_host.items():
        files.setdefault(sudoers_file(login, needed), []).append(host)
    return files
