"""The state of a unit, as `systemctl show` of systemd 252 prints it."""

from __future__ import annotations

import math

import pytest

from kafka_rollout.base.errors import RefusedError, TransientError
from kafka_rollout.nodes.runtimes.hosts.commands import read_number, shown_with_errors
from kafka_rollout.nodes.runtimes.hosts.unit_state import parse_paths, parse_unit

RUNNING = """\
LoadState=loaded
ActiveState=active
SubState=running
MainPID=66
ExecMainPID=66
ExecMainStartTimestamp=Mon 2026-11-23 06:11:15 UTC
NRestarts=0
TimeoutStopUSec=5min
"""


def test_a_running_unit() -> None:
    unit = parse_unit(RUNNING)
    assert (unit.exists, unit.pid, unit.started_at, unit.stop_s) == (True, 66, 1795414275.0, 300.0)
    assert not unit.is_down
    assert not unit.waits_for_restart


def test_a_unit_that_exited_and_starts_again_soon_is_not_down() -> None:
    text = RUNNING.replace("MainPID=66", "MainPID=0", 1).replace("active\n", "activating\n", 1)
    unit = parse_unit(text.replace("running", "auto-restart").replace("NRestarts=0", "NRestarts=3"))
    assert (unit.pid, unit.last_pid, unit.restarts) == (None, 66, 3)
    assert unit.waits_for_restart
    assert not unit.is_down


@pytest.mark.parametrize(
    ("line", "is_root"), [("User=", True), ("User=root\n", True), ("User=kafka", False), ("", False)]
)
def test_a_unit_without_a_user_runs_as_root(line: str, is_root: bool) -> None:
    assert parse_unit(f"{RUNNING}{line}").is_root is is_root


@pytest.mark.parametrize("state", ["inactive", "failed"])
def test_a_stopped_unit_is_down_but_one_that_is_being_stopped_is_not(state: str) -> None:
    stopped = RUNNING.replace("MainPID=66", "MainPID=0", 1).replace("ActiveState=active", f"ActiveState={state}")
    assert parse_unit(f"{stopped}Group=known\n").is_down
    assert not parse_unit(stopped).is_down, "what is left in its control group is unknown"
    assert not parse_unit(RUNNING.replace("ActiveState=active", "ActiveState=deactivating")).is_down


@pytest.mark.parametrize(("shown", "needs_reload"), [("yes", True), ("no", False), ("", None)])
def test_a_unit_that_was_changed_on_disk_is_known(shown: str, needs_reload: bool | None) -> None:
    assert parse_unit(f"{RUNNING}NeedDaemonReload={shown}\n").needs_reload is needs_reload


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1min 30s", 90.0), ("infinity", math.inf), ("soon", None), ("500ms", 0.5), ("2h", 7200.0), ("5s", 5.0)],
)
def test_the_stop_timeout_is_read_in_seconds(text: str, seconds: float | None) -> None:
    assert parse_unit(RUNNING.replace("5min", text)).stop_s == seconds


def test_the_commands_that_stop_a_unit_are_read_as_systemd_shows_them() -> None:
    assert parse_unit(RUNNING).stop_commands == ()
    script = "/opt/kafka/bin/kafka-server-stop.sh"
    times = "ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }"
    shown = (
        f"ExecStop={{ path={script} ; argv[]={script} --node-id=1 ; {times}\n"
        f"ExecStop={{ path=/bin/sh ; argv[]=/bin/sh -c {script} ; sleep 1 ; {times}\n"
    )
    shown += f"ExecStopPost={{ path=/bin/rm ; argv[]=/bin/rm /run/kafka.pid ; {times}\n"
    unit = parse_unit(RUNNING + shown)
    assert unit.stop_commands == (f"{script} --node-id=1", f"/bin/sh -c {script} ; sleep 1")
    assert unit.after_stop == ("/bin/rm /run/kafka.pid",)


def test_a_line_break_does_not_end_a_command_of_a_unit() -> None:
    times = "ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }"
    first, second = "/bin/sh -c f() {\necho a ; }\nf\npkill -f kafka.Kafka", "/bin/sh -c sleep 1\nkill $MAINPID"
    shown = (
        f"ExecStop={{ path=/bin/sh ; argv[]={first} ; {times}\nExecStop={{ path=/bin/sh ; argv[]={second} ; {times}\n"
    )
    shown += f"ExecStopPost={{ path=/bin/sh ; argv[]={second} ; {times}\n"
    unit = parse_unit(f"{shown}{RUNNING}")
    assert (unit.stop_commands, unit.after_stop) == ((first, second), (second,))
    assert unit.active == parse_unit(RUNNING).active


@pytest.mark.parametrize(
    ("end", "ignored"),
    [
        ("ignore_errors=no ; start_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }", False),
        ("ignore_errors=yes ; start_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }", True),
        ("flags= ; start_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }", False),
        ("}", False),
    ],
)
def test_a_group_of_a_shell_does_not_end_the_text_of_a_command(end: str, *, ignored: bool) -> None:
    command = "/bin/sh -c test -f /x && { echo a ; } ; pkill -f kafka.Kafka"
    shown = f"{{ path=/bin/sh ; argv[]={command} ; {end}"
    assert shown_with_errors(f"{shown}\n{shown}") == [(command, ignored)] * 2
    assert parse_unit(f"{RUNNING}ExecStop={shown}\n").stop_commands == (command,)


def test_a_missing_unit_does_not_exist() -> None:
    assert not parse_unit("LoadState=not-found\nActiveState=inactive\nMainPID=0\n").exists


@pytest.mark.parametrize("name", ["MainPID", "ExecMainPID", "NRestarts"])
def test_a_number_that_systemd_does_not_show_is_unknown_and_not_zero(name: str) -> None:
    with pytest.raises(RefusedError, match=f"does not report {name} as a number: many"):
        parse_unit(f"{RUNNING}{name}=many\n")


def test_a_host_that_prints_nothing_is_asked_again() -> None:
    with pytest.raises(TransientError, match="does not report its free space as a number: no output"):
        read_number("\n", "its free space")


def test_a_line_that_stat_does_not_print_is_no_path() -> None:
    lines = "rwx/0/root/etc\n41ed/0/root//etc\n41ed/x/root//opt\nstat: /a/b/c/d\n81a4/997/kafka//a b/c/d\n"
    assert [(path.path, path.mode, path.user_id) for path in parse_paths(lines)] == [
        ("/etc", 0o40755, 0),
        ("/a b/c/d", 0o100644, 997),
    ]
