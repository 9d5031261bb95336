"""Commands on the host of a node, with sudo and without, and the errors of commands that fail.

The files of a metadata directory are read and changed by single commands as the user of the node (`HostDirectory`).
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from kafka_rollout.base.errors import FatalError, RefusedError, RolloutError, TransientError, UserError
from kafka_rollout.base.lease import Fence
from kafka_rollout.base.outside_text import escape_invisible, parse_number
from kafka_rollout.base.time_limits import CHANGE_WITHIN_S
from kafka_rollout.base.wording import size as size_text
from kafka_rollout.model.log_directories import PARTITION
from kafka_rollout.model.topology import NodeSpec, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.rights import DRAFT, HostRight, HostRights, MetadataRights
from kafka_rollout.nodes.runtimes.hosts.shells import COMMAND_S, UNLIMITED, Done, Shell, refused_by_sudo
from kafka_rollout.nodes.runtimes.hosts.unit_processes import without_kafka

_UPTIME = "cut -d. -f1 /proc/uptime"
_UPTIME_FRESH_S = 2.0
_END_IF_CLOSED = 'case "$(grep -s ^PPid: /proc/$$/status)" in ""|*[!0-9]$PPID) ;; *) exit;; esac'
_LATE, _LATE_CODE = "kafka-rollout: too late, so this line was not run:", 76
_LATE_LINE = re.compile(rf"{_LATE} (\d+)$", re.MULTILINE)
_TRIES = 3  # without a line that was in time
GROWTH = 1 << 30  # bytes that a file can have grown by since it was listed: log.segment.bytes by default
_BYTES_S = 1 << 20  # slower connections are given up
_RUNS, _DIFFERS = 75, 77  # exit codes of a change that was refused, and of a draft that differs from its source
_LISTED = re.compile(r"(.)/(\d+)/([^/]+)(?:/([^/]+))?")
_UNREADABLE = "-"
_ENTRY = re.compile(r"([a-z])/(\d+)/(\d+(?:\.\d+)?)/(\d+)(/.+)")
RECORDS = ".kafka-rollout"
"""Folder in the home of the SSH user."""
LIST_S = 300.0  # a directory with many partitions on a slow disk
_UNREAD = re.compile(
    r"\S*find: .(?P<path>.*?/(?P<name>[^/]+)).: (?:(?P<is_gone>No such file or directory)|Permission denied)"
)
_NAME = re.compile(r"meta\.properties|bootstrap\.checkpoint|__cluster_metadata-0(/[a-z0-9][A-Za-z0-9_.-]*){0,2}")
MISSING = "No such file"
_NO_RIGHT = re.compile(r"Permission denied|(?:Operation|Access) (?:is )?not permitted|Access denied")
_NO_WRITING = re.compile(r"Read-only file system|No space left on device|Disk quota exceeded")
_NO_PROGRAM = re.compile(r"(\S+): (?:command )?not found")
# A group of the shell in argv[] has ` ; }` too: only that at the end of the line ends it, if nothing else does
# (exec_status_info in src/systemctl/systemctl-show.c).
# A line break in a word is printed as it is.
_COMMAND = re.compile(
    r"(?:\bpath=([^;{}]*?) ; )?argv\[\]="
    r"(?:((?:(?!argv\[\]=)(?s:.))*?) ; (?:ignore_errors=(\w+)|flags=)|(.*?)(?: ;)?(?: \})?\s*$)",
    re.MULTILINE,
)


def unusable(done: Done, sentence: str, *, remedy: str, user: str = "the SSH user") -> RolloutError:
    """Return the error of a command that a host has run, and whose result cannot be used.

    Only this function decides whether a repetition can help: not without a right or a program, and not if the command
    succeeded and prints something else. `user`: who needs the right. `remedy`: of other causes.
    """
    if _NO_RIGHT.search(done.err):
        return RefusedError(sentence, remedy=f"Give {user} the right that the host names, then repeat the step.")
    if problem := _NO_WRITING.search(done.err):
        return RefusedError(sentence, remedy=f"Correct the file system ({problem[0]}), then repeat the step.")
    if missing := _NO_PROGRAM.search(done.err):
        return RefusedError(sentence, remedy=f"Install {missing[1]} on the host, then repeat the step.")
    return (RefusedError if done.code == 0 else TransientError)(sentence, remedy=remedy)


class HostCommands:
    """A base of runtimes on hosts."""

    __slots__ = ()
    shell: Shell
    fence: Fence
    """Checked before each change."""
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]
    uptimes: dict[str, tuple[float, int]]
    """Host → when it was read, seconds."""

    def act(self, node: NodeSpec, right: HostRight, **values: object) -> Done:
        """Run a command with sudo that changes nothing; raises if it fails."""
        return self.expect(node, right, self.run(node, right.command(**values)))

    def change(self, node: NodeSpec, right: HostRight, *, text: str | bytes | None = None, **values: object) -> Done:
        """Run a command with sudo that changes the host; raises if it fails, or if this process may not act now."""
        return self.expect(node, right, self.run_fenced(node, shlex.join(right.command(**values)), text=text))

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

    def run_foreign(self, node: NodeSpec, line: str, *, within_s: float) -> Done:
        """Run a command of the operator or a package manager, as `run_fenced`. What it starts can live on, so it has no
        limit of processor time."""
        return self.run_fenced(node, line, first=[UNLIMITED], within_s=within_s)

    def try_foreign(self, node: NodeSpec, line: str, *, within_s: float) -> Done:
        """Run a trial of a package manager, which changes its caches alone: a plan has no lock. As `run_foreign`, it
        has no limit of processor time."""
        return self.run(node, f"{UNLIMITED} && {line}", within_s=within_s)

    def _read_uptime(self, host: str) -> int:
        """Seconds since the boot of the host, at most _UPTIME_FRESH_S old."""
        read_at, uptime = self.uptimes.get(host, (float("-inf"), 0))
        now = self.monotonic()
        if now - read_at > _UPTIME_FRESH_S:
            done = self.shell.run(host, _UPTIME)
            if not done.out.strip().isdigit():
                raise unusable(
                    done,
                    f"Host {host} does not report its uptime: {done.problem}.",
                    remedy="Make /proc/uptime readable for the SSH user, then repeat the step.",
                )
            read_at, uptime = now, int(done.out)
            self.uptimes[host] = read_at, uptime
        return uptime

    def sudo(
        self,
        node: NodeSpec,
        right: HostRight,
        *,
        sink: Callable[[bytes], object] | None = None,
        within_s: float = COMMAND_S,
        **values: object,
    ) -> Done:
        return self.shell.run(service_of(node).host, right.command(**values), sink=sink, within_s=within_s)

    def run(self, node: NodeSpec, command: str | Sequence[str], *, within_s: float = COMMAND_S) -> Done:
        return self.shell.run(service_of(node).host, command, within_s=within_s)

    def expect(self, node: NodeSpec, right: HostRight, done: Done) -> Done:
        self.refuse_missing_right(node, right, done)
        if done.code != 0:
            raise unusable(
                done,
                f"The tool cannot {right.purpose}: node {node.name}, host {service_of(node).host}: {done.problem}.",
                remedy="Check the host and the paths of the inventory, then repeat the step.",
                user=f"user {right.as_user}",
            )
        return done

    def expect_listed(self, node: NodeSpec, right: HostRight, done: Done, directory: str) -> Done:
        """As `expect`, for a list of a log directory, which can be missing. A file can have disappeared while its
        folder was read, and a folder that is not a partition can be closed: a start reads its name alone."""
        unread = [match for match in map(_UNREAD.fullmatch, done.err.splitlines()) if match]
        if unread and all(
            one["is_gone"] or (PARTITION.fullmatch(one["name"]) is None and one["path"] != directory) for one in unread
        ):
            return done
        return self.expect(node, right, done)

    def list_directory(
        self, node: NodeSpec, right: HostRight, directory: str
    ) -> Iterator[tuple[str, int, str, str, bool]]:
        """Yield type (`d`, `f`), size, name of a folder or file, name of a file in the folder (else empty) and
        is_readable. Raises RefusedError for a name that cannot be told from the next one. `right`: what lists them."""
        done = self.expect_listed(node, right, self.sudo(node, right, within_s=LIST_S), directory)
        records = done.out.split("|")
        for record, after in itertools.pairwise(records):
            match = _LISTED.fullmatch(record)
            if match is not None:
                yield match[1], int(match[2]), match[3], match[4] or "", after != _UNREADABLE
            elif record != _UNREADABLE:
                raise RefusedError(
                    f"A name in {directory} on host {service_of(node).host} cannot be read, near "
                    f"{escape_invisible(record[:60])}.",
                    remedy="Remove the file or folder with | in its name.",
                )

    def refuse_missing_right(self, node: NodeSpec, right: HostRight, done: Done) -> None:
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


def read_properties(shown: str) -> dict[str, str]:
    """Return what `systemctl show` prints of one unit: the last line of each property."""
    return dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)


def shown_commands(shown: str) -> list[str]:
    """Return the commands in what `systemctl show` prints of settings such as ExecStart, without their quotes."""
    return [text for text, _ in shown_with_errors(shown)]


def shown_with_errors(shown: str) -> list[tuple[str, bool]]:
    """Return the commands, and whether their errors are ignored.

    The program is `path`: the first word of argv[] is another one after `@` (systemd.service(5)), and has no path if
    systemd finds the program.
    """
    found = []
    for match in _COMMAND.finditer(shown):
        path, text = match[1] or "", (match[4] if match[2] is None else match[2]).strip()
        first, _, rest = text.partition(" ")
        if path.startswith("/") and not first.startswith(("/", "$")):
            text = f"{path} {rest}".strip()
        found.append((text, match[3] == "yes"))
    return found


def shown_units(shown: str) -> list[str]:
    """Return the names of units that `systemctl show` prints. systemd quotes a name with a backslash, and doubles the
    backslash."""
    return [word.strip('"').replace("\\\\", "\\") for word in shown.split()]


def read_number(text: str, what: str) -> int:
    """Return a number that a host prints. Raises RefusedError for another text, TransientError for none: not 0."""
    number = parse_number(text.strip())
    if number is None:
        raise (RefusedError if text.strip() else TransientError)(
            f"The host does not report {what} as a number: {text.strip()[:60] or 'no output'}.",
            remedy="Run the command there as the SSH user: a wrapper of it can print other text.",
        )
    return number


def service_of(node: NodeSpec) -> ServiceSpec:
    if node.service is None:
        raise UserError(f"Node {node.name} has no host in the inventory.", remedy="Add its host.")
    return node.service


def rights_of(node: NodeSpec) -> HostRights:
    return HostRights(service_of(node))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A file or folder."""

    name: str
    """Below the directory. `size` in bytes, `modified_at` in epoch seconds."""
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
        done = self.commands.sudo(self.node, right, sink=sink, file=name, within_s=transfer_s(size))
        if MISSING in done.err:
            raise FileNotFoundError(f"{self.path}/{name}")
        self.commands.expect(self.node, right, done)

    def free_bytes(self) -> int:
        right = self.rights.free
        done = self.commands.expect(self.node, right, self.commands.sudo(self.node, right))
        return read_number((done.out.split() or [""])[-1], "the free space of the directory")

    def refuse_running(self) -> None:
        """Raise UserError unless the unit of the node is stopped."""
        if self.commands.run(self.node, _is_stopped(self.node)).code != 0:
            raise self._runs()

    def change(self, *steps: tuple[HostRight, dict[str, str]], data: bytes | None = None, size: int = 0) -> None:
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

    def _line(self, right: HostRight, values: dict[str, str]) -> str:
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
            f"The directory {self.path} on host {service.host} is in use: {service.unit} runs, or a process is left in "
            "its control group.",
            remedy="Stop the node first.",
        )


def _is_stopped(node: NodeSpec) -> str:
    """A command of the login shell that ends the line with an exit code of its own if systemd has a process, is about
    to start one again, or has left one in the control group."""
    unit = shlex.quote(service_of(node).unit)
    pid, state = (f"$(systemctl show --property={name} --value {unit})" for name in ("MainPID", "ActiveState"))
    down = f'case "{state}" in inactive|failed) ;; *) false;; esac'
    return f'{{ {{ test "{pid}" = 0 && {down} && {without_kafka(unit)}; }} || exit {_RUNS}; }}'


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
