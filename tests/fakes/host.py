"""A host in memory: a unit of systemd, a symlink, releases and files, for commands of the runtime on hosts."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import PurePosixPath

from kafka_rollout.base.errors import TransientError
from kafka_rollout.nodes.runtimes.hosts.shells import COMMAND_S, UNLIMITED, Done

CONFIGURATION = "/etc/kafka/server.properties"
JAVA = "/usr/lib/jvm/java-11"
_JAVA_FILES = {f"{JAVA}/release": 'IMPLEMENTOR="Debian"\nJAVA_VERSION="11.0.2"\nJAVA_VERSION_DATE="2019-01-15"\n'}
_PIPED = re.compile(r"""\{ (sudo .+) \|\| echo "(.+) \$\?" >&2; \} (\| .+)""")
_FENCED = re.compile(
    r"""in_time\(\) \{ case .+ esac; test "\$\(cut -d\. -f1 /proc/uptime\)" -lt (\d+)"""
    r""" \|\| \{ echo '([^']+)' \$1 >&2; exit 76; }; }"""
    r"""(?: && \{ ulimit -S -t unlimited 2>/dev/null \|\| :; \})? && in_time 0 && (.*)""",
    re.DOTALL,
)
_REFUSED = Done(1, b"", "sudo: a password is required")


def done_with(code: int, out: str, err: str) -> Done:
    return Done(code, out.encode("latin-1"), err)


OWN = "10.77.0.11"
"""The address of the host."""
_EXEC_START = (
    "{ path=/x ; argv[]=/opt/kafka/bin/kafka-server-start.sh /etc/kafka/server.properties ; ignore_errors=no }"
)


@dataclass(kw_only=True)
class FakeHost:
    """`refused`: programs that sudo refuses. `cut_after`: a program after whose work the connection breaks once.
    `files` have one character for each byte; `inodes`: of some of them. `journal`: exit code and both outputs of
    journalctl; `entries`: with --output=json; `cursors`: those without texts; `dropped`: what it has of suppressed
    messages. `disk`: free bytes for a file. `unreadable`: path → error. `sudo_answers`: instead of the true ones.
    `uptime` in seconds.
    `listed`: exit code and output of `sudo --list`. `owners`: path → mode and owner; default: root's.
    `package`: the releases of its jars, if Kafka is a package of `available`; `held`: packages (None: unknown);
    `script`: what its installation does otherwise (starts the unit, replaces the configuration, is interrupted, fails,
    foreign fails, leaves both packages). `unfinished`: what dpkg has not configured, `iF |linux-image-6.1`.
    `answers`: program that root runs → what it answers to its words. `left`: processes in the control group beside the
    main process, pid → name (None: unknown); one of `java` can be Kafka."""

    link: str = "/opt/kafka_2.13-4.2.1"
    link_is_folder: bool = False
    releases: set[str] = field(default_factory=lambda: {"4.2.1", "4.3.1"})
    files: dict[str, str] = field(default_factory=lambda: {CONFIGURATION: "node.id=1\nlog.dirs=/data\n", **_JAVA_FILES})
    active: str = "active"
    sub: str = "running"
    pid: int = 50
    restarts: int = 0
    started: int = 0
    hangs: bool = False
    loaded: str = "4.2.1"
    refused: set[str] = field(default_factory=set)
    cut_after: str | None = None
    history: list[str] = field(default_factory=list)
    inodes: dict[str, int] = field(default_factory=dict)
    journal: tuple[int, str, str] = (0, "", "")
    entries: str = ""
    cursors: str = ""
    capabilities: str = ""
    dropped: str = ""
    disk: int = 1 << 30
    unreadable: dict[str, str] = field(default_factory=dict)
    sudo_answers: str | None = None
    listed: tuple[int, str, str] = (0, "", "")
    owners: dict[str, tuple[int, str]] = field(default_factory=dict)
    can_unpack: bool = True
    package: list[str] | None = None
    available: tuple[str, ...] = ("4.2.1", "4.3.1")
    script: str = ""
    answers: Mapping[str, Callable[[list[str]], Done]] = field(default_factory=dict)
    changed_files: str = ""  # what `dpkg --verify` prints
    held: set[str] | None = field(default_factory=set)
    unfinished: list[str] | None = field(default_factory=list)
    masked: bool = False
    free: str = "900000"
    space: str = "900000000"
    home: str = "900000000"
    mode: str = "81a4"  # of the log file
    sudo: str = "1.9.13p3"
    stop: str = "5min"
    java: str = f"{JAVA}/bin/java"
    clock: float = 1_700_000_000.5
    home_problem: str = ""  # of writing there
    free_files: str = "  99000   100000"
    mounted: str = "rw"  # empty: findmnt is missing
    uptime: int = 5000
    on_command: Callable[[str], None] = lambda line: None
    start: str = ""
    changed: Mapping[str, str] = field(default_factory=dict)  # path → `content/inode` in epoch seconds; empty: hidden
    command: str = ""  # lines `exec` (of the unit) and `arg` (of its process)
    # unit → what systemd shows of it; None: it shows nothing
    depends: Mapping[str, Mapping[str, str] | None] = field(default_factory=dict)
    services: str = ""  # the commands of the units that are loaded
    shows: bool = True  # False: `systemctl show` of them fails
    jvm: str = "env \narg java\narg -Da=b c\n"
    machines: dict[str, str] = field(default_factory=dict)  # host → what only its machine reports
    asked: str = ""
    unit_id: str = ""
    left: dict[int, str] | None = field(default_factory=dict)
    kill_mode: str = "control-group"
    sends_sigkill: str = "yes"
    needs_reload: str = "no"
    can_start: str = "yes"
    transient: str = "no"
    unit_file: str = "/etc/systemd/system/kafka.service"
    unit_text: str = "[Service]\nExecStart=/opt/kafka/bin/kafka-server-start.sh /etc/kafka/server.properties\n"
    cats: bool = True  # False: `systemctl cat` fails
    unresolved: Collection[str] = ()  # names of machines
    resolves: Mapping[str, str] = field(default_factory=dict)  # name → address; OWN for the others
    listens: Sequence[str] = ()  # lines of names.py
    nonlocal_bind: int = 0
    mounts: Mapping[str, str] = field(default_factory=dict)  # properties of the unit
    gone: set[str] = field(default_factory=set)  # paths that a start names and that do not exist
    unit_files: str = (
        "Loaded=known\nFound=known\nloaded [Unit]\nfound [Unit]\n"  # what the command of loaded_files.py prints
    )
    flags: str = ""  # lsattr: `i` or `a` of the configuration
    flags_error: str = ""  # for each path
    # what the commands of package_scripts.py print of each package that is installed or loaded
    scripts: str = "package kafka\nwhole\n"
    has_mount: bool = False  # the configuration is a mount point
    kill_signal: str = "15"
    hidden_words: list[str] = field(default_factory=list)  # of a process whose open files the kernel hides
    hidden: str = ""  # why
    words: Sequence[str] = ("java", "-Da=b c")  # of the process
    login_file: str = ""  # what the command of login_files.py prints
    jar_mark: str = ""  # ` (deleted)`: the jar that the process has open was removed
    other_files: str = ""  # more lines of the list of its open files
    modes: dict[str, str] = field(  # path → mode and ids, as `ls -ln` shows them
        default_factory=lambda: {
            "/data": "drwxr-x---. 1 997 997",
            "/tmp": "drwxrwxrwt. 1 0 0",  # noqa: S108
            "/": "drwxr-xr-x. 1 0 0",
        }
    )
    load_state: str = "loaded"
    upheld_by: str = ""
    own_name: str = f"code 0 h\ncanonical {OWN} h.corp\n"
    limits: str = ""  # lines of process_limits.py
    user: str = "kafka"  # of the unit; root: `of_process` shows the ids of the process
    of_process: str = ""
    noexec: Collection[str] = ()  # folders that are mounted so
    present: set[str] = field(default_factory=set)  # paths that have a file again
    processes: str = (
        "Processes=known\nUser=997\nPrivileged=no\n"  # those of Kafka outside of the unit, as unit_stops.py reads them
    )

    def run(
        self,
        host: str,
        command: str | Sequence[str],
        *,
        text: str | bytes | None = None,
        within_s: float = COMMAND_S,
        sink: Callable[[bytes], object] | None = None,
    ) -> Done:
        """`on_command` is called with each line when it arrives, before the host looks at its clock."""
        line = command if isinstance(command, str) else shlex.join(command)
        self.asked = host
        if (piped := _PIPED.fullmatch(line)) is not None:
            done = self.run(host, f"{piped[1]} {piped[3]}")
            return done if done.code == 0 else done_with(0, done.out, f"{done.err}\n{piped[2]} {done.code}\n")
        self.on_command(line)
        if line == "cut -d. -f1 /proc/uptime":
            return done_with(0, f"{self.uptime}\n", "")
        if line.startswith(tried := f"{UNLIMITED} && "):
            line = command = line.removeprefix(tried)
        if (fenced := _FENCED.fullmatch(line)) is not None:
            if self.uptime >= int(fenced[1]):
                return done_with(76, "", f"{fenced[2]} 0\n")
            command = fenced[3]
        text = text.decode("latin-1") if isinstance(text, bytes) else text
        words = shlex.split(command) if isinstance(command, str) else list(command)
        if words[:3] == ["sudo", "-n", "-l"]:
            return self._list_rights(line) if len(words) > 3 else done_with(*self.listed)
        if words[0] == "sudo":
            program = words[4].rsplit("/", 1)[-1]
            name = f"{program} {words[5]}" if program == "systemctl" else program
            if name in self.refused:
                return _REFUSED
            self.history.append(shlex.join([program, *words[5:]]))
            done = self._root(program, words[5:], text)
            if name == self.cut_after:
                self.cut_after = None
                raise TransientError(f"Host {host} cannot be reached by SSH (the connection was closed).")
            return done
        return self._login(command if isinstance(command, str) else shlex.join(command), text)

    def close(self) -> None:
        """Nothing is open."""

    def _list_rights(self, line: str) -> Done:
        """Several are numbered, as the runtime asks for them in one line."""
        *asked, last = line.split("; ") if "; " in line else (line, "")
        programs = [one.split()[5].rsplit("/", 1)[-1] for one in asked]
        refused = [number for number, program in enumerate(programs) if program in self.refused]
        if last and self.sudo_answers is not None:
            return done_with(0, self.sudo_answers, "")  # the line ends with an echo
        answers = [*map(str, refused), *([last.removeprefix("echo ")] if last else [])]
        return done_with(0 if last or not refused else 1, "\n".join(answers), "")

    def _root(self, program: str, words: list[str], text: str | None) -> Done:
        match program, words:
            case "dd", [read, "iflag=nonblock", "bs=1M", "status=none"]:
                path = read.removeprefix("if=")
                if path in self.unreadable:
                    return done_with(1, "", f"dd: failed to open '{path}': {self.unreadable[path]}")
                missing = done_with(1, "", f"dd: failed to open '{path}': No such file or directory")
                return done_with(0, self.files[path], "") if path in self.files else missing
            case "sha256sum", [path] if path not in self.files:
                return done_with(1, "", f"sha256sum: {path}: No such file or directory")
            case "sha256sum", [path]:
                return done_with(0, f"{sha256(self.files[path].encode('latin-1')).hexdigest()}  {path}\n", "")
            case "stat", ["--dereference", "--format=%i/%s/%f", path]:
                missing = done_with(1, "", f"stat: cannot statx '{path}': No such file or directory")
                seen = done_with(0, f"{self.inodes.get(path, 7)}/{len(self.files.get(path, ''))}/{self.mode}\n", "")
                return seen if path in self.files else missing
            case "tail", ["--bytes", offset, path, "|", *_] if path in self.files:
                return done_with(0, self.files[path][int(offset) - 1 :], "")
            case "tail", ["--lines", lines, path] if path in self.files:
                return done_with(0, "".join(self.files[path].splitlines(keepends=True)[-int(lines) :]), "")
            case "tail", [*_, path] | [*_, path, "|", _, _, _] | [*_, path, "|", _]:
                return done_with(1, "", f"tail: cannot open '{path}': No such file or directory")
            case "stat", [_, *paths]:
                errors = [
                    f"stat: cannot statx '{path}': {self.unreadable[path]}" for path in paths if path in self.unreadable
                ]
                seen = "".join(self._stat(path) for path in paths if path not in self.unreadable)
                return done_with(1 if errors else 0, seen, "\n".join(errors))
            case "readlink", [_]:
                return done_with(0, f"{self.java}\n", "")
            case "lsattr", _:
                return self._list_flags(words[1:])
            case "ls", ["-l", fd]:
                return self._open_files(fd)
            case "systemctl", ["stop", *_] if not self.hangs:
                if self.kill_mode == "none" and self.pid:
                    self.left = {self.pid: "java"}
                self.active, self.sub, self.pid = "inactive", "dead", 0
            case "systemctl", ["kill", *_]:
                self.active, self.sub, self.pid, self.left = "failed", "failed", 0, {}
            case "systemctl", ["start", *_] if self.pid == 0 and not self.masked:
                self._start()
            case "systemctl", ["mask" | "unmask" as word, "--runtime", _]:
                self.masked = word == "mask"
            case _ if program in self.answers:
                return self.answers[program](words)
            case "apt-get", ["install", "--download-only", "--reinstall", *_, word]:
                return self._load(word.partition("=")[2])
            case "apt-get", ["install", *_, word]:
                return self._install(word.partition("=")[2])
            case "dnf", ["remove", "-y", "--duplicates"]:
                self.script = ""
            case "dnf", ["install", *_, word]:
                return self._install(word.partition("-")[2])
            case "apt-mark", ["hold", name]:
                self.held = {*(self.held or ()), name}
            case "dpkg", ["--force-confold", "--configure", "-a"]:
                self.script = ""
            case "ln", ["-sfnT", target, link]:
                self.files[link] = target
            case "mv", ["-T", source, target]:
                if target == "/opt/kafka":
                    self.link = self.files.pop(source)
                else:
                    self.files[target] = self.files.pop(source)
            case "cp", ["-aT", "--remove-destination", source, target]:
                self.files[target] = self.files[source]
            case "tee", [path]:
                self.files[path] = (text or "")[: self.disk]
        return done_with(0, "", "")

    def _start(self) -> None:
        self.started += 1
        self.active, self.sub, self.pid, self.restarts = "active", "running", 50 + self.started, 0
        self.loaded = self.package[-1] if self.package else self.link.rsplit("-", 1)[-1]

    def _install(self, version: str) -> Done:
        if self.script == "is interrupted":
            return done_with(100, "", "E: dpkg was interrupted, you must manually run 'dpkg --configure -a'")
        mixes = self.script in ("mixes", "leaves both")
        self.package = ["4.2.1", "4.3.1"] if mixes else [version]
        if self.held:  # as apt does
            self.held.discard("kafka")
        if "fails" in self.script:
            broken = "linux-image-6.1" if "foreign" in self.script else "kafka"
            self.unfinished = [*(self.unfinished or ()), f"iF |{broken}"]
            return done_with(100, "", "E: Sub-process /usr/bin/dpkg returned an error code (1)")
        if "starts" in self.script:
            self._start()
        if "replaces" in self.script:
            self.files[CONFIGURATION] = "# of the package\n"
        return done_with(0, "", "")

    def _load(self, version: str) -> Done:
        if version not in self.available:
            return done_with(100, "", f"E: Version '{version}' for 'kafka' was not found")
        if self.script == "has no file":
            return done_with(0, "Reinstallation of kafka is not possible, it cannot be downloaded.\n", "")
        return done_with(0, "Download complete and in download only mode\n", "")

    def _login(self, line: str, text: str | None) -> Done:
        if "SYSTEMCTL_INSTALL_CLIENT_SIDE" in line:
            return done_with(0, self.unit_files, "")
        if "--property=BindPaths," in line:
            names = ("BindPaths", "BindReadOnlyPaths", "TemporaryFileSystem", "RootDirectory")
            shown = {**dict.fromkeys(names, ""), "PrivateTmp": "no", "ProtectHome": "no", **self.mounts}
            return done_with(0, "".join(f"{name}={value}\n" for name, value in shown.items()), "")
        if "--property=NoNewPrivileges," in line:
            return done_with(0, self.limits, "")
        if "--property=LogsDirectory," in line:
            return done_with(0, "".join(f"{name}={value}\n" for name, value in self.mounts.items()), "")
        if "fib_trie" in line:
            return done_with(0, self._network((text or "").splitlines()), "")
        if 'getent "$kind"' in line:
            return done_with(0, "".join(f"{one}\n" for one in (text or "").splitlines() if one not in self.gone), "")
        if "getent hosts" in line:
            return done_with(0, self.own_name, "")
        if "getent ahosts" in line:
            return done_with(0, "".join(f"{2 * (name in self.unresolved)}\n" for name in (text or "").splitlines()), "")
        if line.startswith("systemctl cat "):
            return done_with(0, self.unit_text, "") if self.cats else done_with(1, "", "Permission denied")
        if line.startswith("test -f ") and "useKeyTab" in line:
            return done_with(0, self.login_file, "")
        if "dpkg-query --control-show $one" in line or "dpkg-deb --info" in line or "rpm -q -p --scripts" in line:
            return done_with(0, self.scripts, "")
        if "head -c 200000" in line:  # texts
            shown = ""
            for path in (text or "").splitlines():
                lines = self.files.get(path, "").splitlines()
                kind = "file" if path in self.files else "unread" if path in self.unreadable else "none"
                shown += "".join([f"{kind} {path}\n", *(f"text {one}\n" for one in lines)])
            return done_with(0, shown, "")
        if "Hidden=namespace" in line and line.startswith("tr "):
            why = [f"Hidden={self.hidden}"] if self.hidden else []
            return done_with(0, "\n".join([*(f"arg {word}" for word in self.hidden_words), *why]), "")
        if "Processes=known" in line:
            return done_with(0, self.processes + self._group(), "")
        return done_with(0, self._group(), "") if line.startswith("left() {") else self._answer(line, text)

    def _answer(self, line: str, text: str | None) -> Done:
        if "PK\\005\\006" in line:
            folders = re.findall(r"echo 'libs (/opt/kafka_2\.13-([\d.]+)\S*)'", line)
            there = [(folder, release) for folder, release in folders if release in self.releases]
            names = (f"folder {one}\nlibs {one}\njar kafka_2.13-{release}.jar\njar new.jar" for one, release in there)
            return done_with(0, "\n".join(names), "")
        if "--property=User," in line:
            return done_with(0, self._user(), "")
        if "findmnt" in line and not line.startswith("if test -L "):
            programs, _, paths = f"\n{text or ''}".partition("\n\n")
            options = [
                f"options {path}\nmounted rw,relatime{',noexec' if path in self.noexec else ''}"
                for path in programs.splitlines()
            ]
            modes = [
                f"{self.modes.get(path, '-rwxr-xr-x. 1 0 0')} 1 Jan  1 00:00 {path}" for path in paths.splitlines()
            ]
            return done_with(0, "\n".join([*options, *modes]), "")
        if line.startswith("walk() {"):
            return done_with(0, self._walk(line, (text or "").splitlines()), "")
        if line.startswith("systemctl show --property=Id,Names,ExecStart,"):
            unit = shlex.split(line)[4]  # the last word is a pattern
            is_named = f"Id={unit}\n" not in self.services and self.depends.get(unit, {}) is not None
            own = f"Id={unit}\nNames={unit}\n\n" if is_named else ""
            return done_with(0 if self.shows else 1, own + self.services, "")
        if line.startswith("systemctl show --property=Id,Names,"):
            shown = [self._depends(unit) for unit in shlex.split(line)[4:]]
            return done_with(0, "\n".join(filter(None, shown)), "")
        if line.startswith("systemctl show --property=Id,ExecCondition,"):
            return done_with(0, "\n".join(self._commands_of(unit) for unit in shlex.split(line)[4:]), "")
        if "--property=FragmentPath" in line:
            return done_with(0, self.start, "")
        if line.startswith("stat --dereference "):
            paths = [word for word in shlex.split(line) if word.startswith("/")]
            seen = [f"{self.changed[path]}{path}" for path in paths if self.changed.get(path)]
            hidden = [
                f"stat: cannot statx '{path}': Permission denied" for path in paths if self.changed.get(path) == ""
            ]
            gone = [
                f"stat: cannot statx '{path}': No such file or directory" for path in paths if path not in self.changed
            ]
            return done_with(1 if hidden or gone else 0, "\n".join(seen), "\n".join([*hidden, *gone]))
        if "--property=Environment" in line:
            return done_with(0, self._arguments(), "")
        if "--property=ExecStart" in line:
            return done_with(0, self.command, "")
        line = line.replace('"$(uname -n)"', self.asked)
        if line.startswith(("mkdir -p .kafka-rollout/claims/", "mv -T .kafka-rollout/claims/", "rm -f ")):
            return self._change_claims(line, text or "")
        if "systemctl show" in line:
            jars = " ".join(f"/jars/kafka_2.13-{release}.jar" for release in self.package or ())
            link = self.link if self.package is None else jars
            return done_with(0, f"{self._show()}{self._claims()}Link={link}\n", "")
        if (done := self._installation(line)) is not None:
            return done
        if line.startswith("if test -L "):
            return self._look(line)
        if line.startswith("if said="):
            return done_with(0, f"{self._try_records()}\n", "")
        if match := re.match(r"path=\$\(readlink -e (\S+)\) && test -f", line):
            path = match[1]
            chain = [path, *(str(folder) for folder in PurePosixPath(path).parents)]
            return done_with(0, "".join(map(self._stat, chain)), "") if path in self.files else done_with(1, "", "")
        if line.startswith(("exe=", "for java in ")):
            process = f"exe 0 {self.java}\n" if line.startswith("exe=") else ""
            return done_with(0, f"{process}java 0 {self.java.removesuffix(' (deleted)')}\n", "")
        if line.startswith("cat /"):
            return done_with(0, self.files[line.split()[1]], "")
        if line.startswith("date "):
            return done_with(0, f"{self.clock}\n", "")
        if line.startswith("echo free "):
            return done_with(0, f"free 900\n{self._words_and_again(line)}", "")
        if match := re.search(r"mv -T \S+ (\.kafka-rollout/\S+)$", line):
            self.files[match[1]] = text or ""
        if match := re.fullmatch(r"if test -e (\S+); then cat \1; fi", line):
            return done_with(0, self.files.get(match[1], ""), "")
        if line.startswith(("journalctl", "{ journalctl")):
            self.history.append(line)
            if "--output=json" in line:
                return done_with(0, self.entries if "MESSAGE" in line else self.cursors, "")
            return done_with(0, self.dropped, "") if "MESSAGE_ID=" in line else done_with(*self.journal)
        if line.startswith("drain"):
            self.history.append(line)
            return done_with(1 if "fail" in line else 0, "", "no such backend")
        return done_with(0, "", "")

    def _arguments(self) -> str:
        command = self.command if self.command.startswith("{") else _EXEC_START
        return self.jvm + ("" if "show ExecStart=" in self.jvm else f"\nshow ExecStart={command}\n")

    def _network(self, names: Sequence[str]) -> str:
        shown = [
            line
            for name in names
            for line in (
                [f"code 2 {name}"]
                if name in self.unresolved
                else [f"code 0 {name}", f"is {self.resolves.get(name, OWN)}"]
            )
        ]
        return "\n".join([*shown, f"own {OWN}", "own 127.0.0.1", *self.listens, f"nonlocal {self.nonlocal_bind}", ""])

    def _list_flags(self, paths: Sequence[str]) -> Done:
        if self.flags_error:
            errors = (f"lsattr: {self.flags_error} While reading flags on {path}" for path in paths)
            return done_with(1, "", "\n".join(errors))
        flags = [self.flags or "-", *("-" for _ in paths[1:])]
        lines = (f"----{flag}---------e------- {path}\n" for flag, path in zip(flags, paths, strict=True))
        return done_with(0, "".join(lines), "")

    def _open_files(self, fd: str) -> Done:
        if self.hidden_words:
            return done_with(2, "", f"ls: cannot open directory '{fd}': Permission denied")
        libs = f"/opt/kafka_2.13-{self.loaded}/libs"
        return done_with(0, f"34 -> {libs}/kafka_2.13-{self.loaded}.jar{self.jar_mark}\n{self.other_files}", "")

    def _words_and_again(self, line: str) -> str:
        words = "".join(f"arg {word}\n" for word in self.words)
        return words + "".join(
            f"again {path}\n" for path in shlex.split(line.replace(";", " ")) if path in self.present
        )

    def _change_claims(self, line: str, text: str) -> Done:
        if claimed := re.search(r" (\S+/open-\w+\.json) && in_time", line):
            self.files[claimed[1]] = text
            return done_with(0, self._claims(), "")
        for source, target in re.findall(r"mv -T (\S+/open-\w+\.json) (\S+/closed\.json)", line):
            self.files[target] = self.files.pop(source)
        for path in re.findall(r"\S+/open-\w+\.json", line):
            self.files.pop(path, None)
        return done_with(0, "", "")

    def _claims(self) -> str:
        paths = [path for path in sorted(self.files, reverse=True) if f"/claims/{self.asked}/" in path]
        words = {path: "Open" if "/open-" in path else "Closed" for path in paths}
        return "".join(["Claims=begin\n", *(f"{words[path]} {self.files[path]}" for path in paths), "Claims=end\n"])

    def _look(self, line: str) -> Done:
        login = ["writable", "login rollout"] if self.can_unpack else ["login rollout"]
        free = [f"free {self.free}", f"sudo {self.sudo if ' ' in self.sudo else f'Sudo version {self.sudo}'}"]
        free.append(f"home {self.home}")
        if "echo space" in line:
            free.append(f"space {self.space}")
        records = [self._try_records()]
        in_files, folders = re.findall(r"for folder in (.*?); do", line)
        records += [f"files {self.free_files} {folder}" for folder in in_files.split()]
        mounts = [f"{self.mounted} {folder}" for folder in folders.split() if self.mounted]
        link = [] if self.link_is_folder else ["link"]
        mounts += ["configuration is mounted"] if self.has_mount else []
        return done_with(0, "\n".join([*link, *login, *free, *records, *mounts]), "")

    def _try_records(self) -> str:
        return f"no-records {self.home_problem}" if self.home_problem else "records"

    def _installation(self, line: str) -> Done | None:
        """What the link and the package manager answer."""
        if line == "readlink /opt/kafka":
            return done_with(0, f"{self.link}\n", "")
        if match := re.fullmatch(r'for one in (\S+) (\S+); do echo "\$\(readlink -e "\$one"\)"; done', line):
            links = () if self.link.startswith("/gone/") else (self.link,)
            known = {*links, *(f"/opt/kafka_2.13-{release}" for release in self.releases)}
            return done_with(0, "".join(f"{path if path in known else ''}\n" for path in match.groups()), "")
        if line.startswith("command -v dpkg-query"):
            shown = "".join(f"{one}\n" for one in self.unfinished or ())
            return done_with(0, f"{shown}whole\n", "") if self.unfinished is not None else done_with(2, "", "no status")
        if line.startswith("dpkg-query --show "):
            state = "iF " if "iF |kafka" in (self.unfinished or ()) else "ii "
            shown = "".join(f"{state}|{version}\n" for version in self.package or ())
            return done_with(0 if shown else 1, shown, "")
        if line == "dpkg --verify kafka":
            return done_with(0, self.changed_files, "")
        if line == "apt-mark showhold":
            names = "".join(f"{name}\n" for name in self.held or ())
            return done_with(0, names, "") if self.held is not None else done_with(100, "", "E: The list is corrupt.")
        return None

    def _depends(self, unit: str) -> str:
        own = self.depends.get(unit, {})
        empty = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "Requires", "Requisite", "BindsTo")
        kept = {"Id": unit, "Names": unit, "LoadState": "loaded", "ActiveState": "active", **dict.fromkeys(empty, "")}
        return "" if own is None else "".join(f"{name}={value}\n" for name, value in {**kept, **own}.items())

    def _user(self) -> str:
        number = 0 if self.user == "root" else 997
        ids = f"name {self.user}\nid {number}\nfirst {number}\nall {number}\nmembers \n"
        return f"{self.of_process}User={self.user}\nGroup=\nSupplementaryGroups=\n{ids}"

    def _commands_of(self, unit: str) -> str:
        own = {"Id": unit, **(self.depends.get(unit, {}) or {})}
        names = ("Id", "ExecCondition", "ExecStartPre", "ExecStart", "FragmentPath", "EnvironmentFiles", "Environment")
        return "".join(f"{name}={own[name]}\n" for name in names if name in own)

    def _walk(self, line: str, paths: Sequence[str]) -> str:
        """Every path exists but those that are `gone`, and /opt/kafka is the only link."""
        found = re.findall(r"for folder in (.*?); do", line)
        if not found:
            states = ("-" if path in self.gone else "+" if "." in posixpath.basename(path) else "d" for path in paths)
            return "".join(
                f"{number} {state} {path}\n" for number, (path, state) in enumerate(zip(paths, states, strict=True))
            )
        folders = found[0].split()
        places = (
            f"{number} {turn} {'-.' if path in self.gone else '+='} {led}\n"
            for number, path in enumerate(paths)
            for turn, folder in enumerate([self.link, *folders])
            for led in [posixpath.normpath(re.sub("^/opt/kafka(?=/|$)", folder, path))]
        )
        return "".join(places)

    def _stat(self, path: str) -> str:
        mode, owner = self.owners.get(path, (0o100640 if path in self.files else 0o40755, "root"))
        return f"{mode:x}/{0 if owner == 'root' else 997}/{owner}/{path}\n"

    def _group(self) -> str:
        """What `left_command` prints."""
        if self.left is None:
            return ""
        found = {**({self.pid: "java"} if self.pid else {}), **self.left}
        lines = (f"{'Left' if name == 'java' else 'Beside'}={pid} {name}\n" for pid, name in found.items())
        return "".join([*lines, "Group=known\n"])

    def _show(self) -> str:
        second = 10 + self.started
        return (
            f"LoadState={'masked' if self.masked else self.load_state}\nUpheldBy={self.upheld_by}\n"
            f"UnitFileState={'masked-runtime' if self.masked else 'enabled'}\n"
            f"ActiveState={self.active}\nSubState={self.sub}\nMainPID={self.pid}\n"
            f"ExecMainPID={50 + self.started}\nExecMainStartTimestamp=Mon 2026-11-23 06:11:{second} UTC\n"
            f"NRestarts={self.restarts}\nTimeoutStopUSec={self.stop}\nUser=kafka\n"
            f"AmbientCapabilities={self.capabilities}\n"
            f"KillMode={self.kill_mode}\nSendSIGKILL={self.sends_sigkill}\n{'' if self.pid else self._group()}"
            f"CanStart={self.can_start}\nTransient={self.transient}\nFragmentPath={self.unit_file}\n"
            f"NeedDaemonReload={self.needs_reload}\nKillSignal={self.kill_signal}\n"
            f"Id={self.unit_id}\nMachine={self.machines.get(self.asked, machine_id(name=self.asked))}\n"
        )


def machine_id(boot: str = "1", namespace: str = "4026531836", machine: str = "0f", name: str = "h") -> str:
    """What a machine with these values reports in `show_command`."""
    return f"{boot.rjust(36, '0')}/pid:[{namespace}]/{machine}/{name}"
