"""A host whose commands run on this machine, without SSH and without sudo, for tests of files."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafka_rollout.base.errors import TransientError
from kafka_rollout.model.topology import NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.rights import HostRights, sudoers_file
from kafka_rollout.nodes.runtimes.hosts.shells import COMMAND_S, Done
from tests.fakes.dying_files import KilledError

_NEVER = 1 << 30
# `left` kills the shell of a line before a command that changes files, `cut` after one.
_SUDO = """\
printf '%s\\n' "$*" >> commands
shift 3
case $1 in
*/df) exec cat free ;;
*/cp | */tee | */sync | */mv | */rm | */mkdir) ;;
*) exec "$@" ;;
esac
read changes < changes
read left cut slow < limits
read uptime < uptime
if test "$changes" -ge "$left"; then kill -9 "$(cat shell)"; exit 1; fi
echo $((changes + 1)) > changes
echo $((uptime + slow)) > uptime
case $1 in */sync) ;; *) "$@" || exit ;; esac
if test "$changes" -ge "$cut"; then kill -9 "$(cat shell)"; fi"""


def without_root() -> list[str]:
    """Words before a command that run it as another user than root.

    `user` of `subprocess` copies the page tables of the tests' process for each command (fork instead of vfork).
    """
    return ["setpriv", "--reuid=65534"] if os.geteuid() == 0 else []


def permitted(sudoers: str, words: Sequence[str]) -> bool:
    """Whether a line permits the command, as sudo reads literal arguments and regular expressions."""
    user, program, arguments = words[3], words[4], " ".join(words[5:])
    for line in sudoers.splitlines()[1:]:
        head, _, text = line.partition(" NOPASSWD: ")
        path, _, expected = text.partition(" ")
        if head != f"rollout ALL=({user})" or path != program:
            continue
        if expected.startswith("^"):
            if re.fullmatch(expected[1:-1], arguments):
                return True
        elif re.sub(r"\\(.)", r"\1", expected) == (arguments or '""'):
            return True
    return False


@dataclass
class LocalHost:
    """The host of a node with its metadata log in `home`/data. `pid`: of the unit's process, 0 if it is stopped.
    `state`: ActiveState of the unit; default: by `pid`. `user`: its User=. `start`: the words of its ExecStart=.
    `group`: the processes in its control group, one a line; None: it has none.

    `free`: bytes of its disk. `changes`: commands that change files. `left`: changes until the caller is killed. `cut`:
    changes until the connection breaks after one. Both end a command line between two of its commands. `slow`: seconds
    of `uptime` that a change takes. `lines`: the command lines that use sudo.
    """

    home: Path
    pid: int = 0
    state: str = ""
    user: str = "root"
    start: str = ""
    group: str | None = None
    left: int | None = None
    cut: int | None = None
    free: int = 1 << 30
    changes: int = 0
    slow: int = 0
    uptime: int = 5000
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.home / "bin").mkdir(parents=True)
        (self.home / "server.properties").write_text(f"log.dirs={self.data}\n")
        self._program("sudo", f"cd {self.home}\n{_SUDO}")
        self._program("cut", f"cat {self.home}/uptime")
        self._program(
            "systemctl",
            "case $* in *=LoadState,*) echo LoadState=loaded; echo ActiveState=inactive;; "
            f"*ControlGroup*kafka*) echo ControlGroup=$(cat {self.home}/group);; *ControlGroup*) echo /init.scope;; "
            f"*=User,*) cat {self.home}/user;; *=ExecStart\\ *) cat {self.home}/exec;; "
            f"*MainPID*) cat {self.home}/pid;; *) echo $(cat {self.home}/state);; esac",
        )

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def node(self) -> NodeSpec:
        service = ServiceSpec(host="kafka-1", configuration_file=str(self.home / "server.properties"))
        return NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER, Role.CONTROLLER}), service=service)

    def commands(self) -> list[list[str]]:
        """The commands that went through sudo."""
        return [["sudo", *line.split(" ")] for line in (self.home / "commands").read_text().splitlines()]

    def sudoers(self) -> str:
        service = self.node.service
        assert service is not None
        return sudoers_file("rollout", HostRights(service).all(str(self.data)))

    def run(
        self,
        host: str,
        command: str | Sequence[str],
        *,
        text: str | bytes | None = None,
        within_s: float = COMMAND_S,
        sink: Callable[[bytes], object] | None = None,
    ) -> Done:
        line = command if isinstance(command, str) else shlex.join(command)
        (self.home / "pid").write_text(f"{self.pid}\n")
        (self.home / "state").write_text(f"{self.state or ('active' if self.pid else 'inactive')}\n")
        groups = "Group=\nSupplementaryGroups=\nDynamicUser=no\nAmbientCapabilities=\nProtectHome=no\n"
        (self.home / "user").write_text(f"User={self.user}\n{groups}")
        argv = f"{{ path=/x ; argv[]={self.start} ; ignore_errors=no }}\n" if self.start else ""
        (self.home / "exec").write_text(argv)
        (self.home / "group").write_text("\n" if self.group is None else "/kafka.service\n")
        for name, processes in (("init.scope", "1\n"), ("kafka.service", self.group or "")):
            (self.home / "groups" / name).mkdir(parents=True, exist_ok=True)
            (self.home / "groups" / name / "cgroup.procs").write_text(processes)
        line = line.replace("/sys/fs/cgroup ", f"{self.home}/groups ")
        (self.home / "free").write_text(f"Avail\n{self.free}\n")
        (self.home / "changes").write_text(f"{self.changes}\n")
        limits = (*(_NEVER if limit is None else limit for limit in (self.left, self.cut)), self.slow)
        (self.home / "limits").write_text(" ".join(map(str, limits)) + "\n")
        (self.home / "uptime").write_text(f"{self.uptime}\n")
        if "sudo" in line:
            self.lines.append(line)
        done = subprocess.run(
            ["/bin/sh", "-c", f"echo $$ > {self.home}/shell\n{line}"],
            env={**os.environ, "HOME": str(self.home), "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}"},
            cwd=self.home,
            input=text.encode() if isinstance(text, str) else text or b"",
            capture_output=True,
            timeout=within_s,
            check=False,
        )
        self.changes, self.uptime = (int((self.home / name).read_text()) for name in ("changes", "uptime"))
        if done.returncode == -signal.SIGKILL:
            if self.left is not None:
                raise KilledError
            self.cut = None
            raise TransientError(f"Host {host} cannot be reached by SSH (the connection was closed).")
        if sink is not None:
            sink(done.stdout)
        return Done(done.returncode, b"" if sink else done.stdout, done.stderr.decode())

    def close(self) -> None:
        """Nothing is open."""

    def _program(self, name: str, line: str) -> None:
        path = self.home / "bin" / name
        path.write_text(f"#!/bin/sh\n{line}\n")
        path.chmod(0o755)
