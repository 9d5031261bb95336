"""Which starts write the configuration again: commands of units and scripts around the start script."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from kafka_rollout.model.host_state import HostState
from kafka_rollout.model.plan import ConfigChange
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.file_writers import find_writers
from kafka_rollout.nodes.runtimes.hosts.option_sources import UnitOptions, read_next_start
from kafka_rollout.planning.findings.hosts import host_problems
from tests.fakes.host import FakeHost
from tests.unit.builders import SEPARATE, catalogue
from tests.unit.nodes.runtimes.test_option_sources import NEW, OLD, Host
from tests.unit.nodes.runtimes.test_service import NODE, runtime_on

FILE = "/etc/kafka/server.properties"
WRITES = [
    f"envsubst < {FILE}.template > {FILE}",
    f'envsubst <{FILE}.template >"{FILE}"',
    f"sed s/HOST/$HOSTNAME/ {FILE}.in >| {FILE}",
    f"CONFIG={FILE}\nenvsubst < x > $CONFIG",
    'CONFIG_DIR=/etc/kafka; CONFIG="${CONFIG_DIR}/server.properties"\nenvsubst < x > "$CONFIG"',
    f"cat > {FILE} <<END",
    'envsubst < x > "${UNKNOWN}/server.properties"',
    "cd /etc/kafka && envsubst < x > server.properties",
    f"render | tee {FILE} >/dev/null",
    f"render | sudo tee -- {FILE}",
    f"cp -p {FILE}.template {FILE}",
    "cp /srv/templates/server.properties /etc/kafka/",
    "cp /srv/templates/server.properties /etc/kafka",
    f"tmp=$(mktemp); render > $tmp; mv $tmp {FILE}",
    f"install -m 0640 -o kafka x {FILE}",
    f"if true; then gomplate -f x -o {FILE}; fi",
    f"render --output={FILE}",
    f"consul-template -once -template x:{FILE}",
    f"/bin/sh -c 'cp x {FILE}'",
]
WRITES_NOT = [
    f"cat {FILE} > /tmp/seen",
    f"kafka-storage.sh format --ignore-formatted -c {FILE} -t x",
    f"test -r {FILE} && chown kafka {FILE}",
    f"echo broker.rack=$RACK >> {FILE}",
    f"sed -i s/a/b/ {FILE}",
    f"render | tee -a {FILE}",
    f"cp {FILE} {FILE}.bak",
    f"cp {FILE} /backup/",
    "render > /etc/connect/server.properties",
    "date > $(mktemp)",
    "tmp=$(mktemp); date > $tmp",
    "echo $$ > $PIDFILE",
    f"grep -q node.id {FILE} 2>/dev/null",
    f"# envsubst < x > {FILE}",
]


@dataclass
class HostWithCommands(Host):
    """A unit with a command before the start."""

    before: str = ""

    def commands(self) -> tuple[str, ...]:
        argv = self.command.replace("HOME", str(self.home))
        lines = [f"ExecStart={{ path=/x ; argv[]={argv} ; ignore_errors=no ; pid=5 }}"]
        if self.before:
            lines.append(f"ExecStartPre={{ path=/x ; argv[]={self.before} ; ignore_errors=no ; pid=0 }}")
        return tuple(lines)

    def writers(self, **variables: str) -> tuple[str, ...]:
        unit = UnitOptions(process=("java", "kafka.Kafka"), variables=variables, commands=self.commands())
        start = read_next_start(cast(HostCommands, self), self.node(), (NEW,), unit)
        return find_writers(start.texts, unit.variables, FILE)


@pytest.fixture
def host(tmp_path: Path) -> HostWithCommands:
    return HostWithCommands(tmp_path)


@pytest.mark.parametrize("line", WRITES)
def test_a_script_before_the_start_that_writes_the_file_is_named(host: HostWithCommands, line: str) -> None:
    script = host.write("render.sh", f"#!/bin/sh\n{line}\n")
    host.before = str(script)
    (found,) = host.writers()
    assert found.startswith(f"{script}: ")
    assert found.removeprefix(f"{script}: ") in line


@pytest.mark.parametrize("line", WRITES_NOT)
def test_a_script_that_reads_the_file_or_adds_a_line_is_not(host: HostWithCommands, line: str) -> None:
    host.before = str(host.write("render.sh", f"#!/bin/sh\n{line}\n"))
    assert host.writers() == ()


def test_the_command_of_the_unit_itself_is_read(host: HostWithCommands) -> None:
    host.before = f"/bin/sh -c envsubst < /srv/x > {FILE}"
    assert host.writers() == (f"unit kafka.service: {host.before}",)
    host.before, host.command = "", f"/bin/bash -c 'envsubst < /srv/x > {FILE}; exec {host.command}'"
    (found,) = host.writers()
    assert found.startswith(f"unit kafka.service: /bin/bash -c 'envsubst < /srv/x > {FILE}; exec {host.home}")


def test_a_wrapper_and_the_start_script_of_the_next_release_are_read(host: HostWithCommands) -> None:
    host.edit(NEW, f"envsubst < /srv/x > {FILE}")
    (found,) = host.writers()
    assert f"{NEW}/bin/kafka-server-start.sh" in found
    host.edit(NEW, "")
    host.edit(OLD, f"envsubst < /srv/x > {FILE}")  # the next start does not execute it
    assert host.writers() == ()
    wrapper = host.write("start-kafka", f"#!/bin/sh\nenvsubst < x > $CONFIG\nexec {host.command}\n")
    host.command = str(wrapper)
    assert host.writers() == ()
    assert host.writers(CONFIG=FILE) == (f"{wrapper}: envsubst < x > $CONFIG",)


TEMPLATE = f"{FILE}.tmpl"
OLD_FILE, NEW_FILE = "1600000000/1600000000", "1700000000/1700000000"


def doubt(line: str, *, changed: dict[str, str] | None = None, template: str = "node.id=7\n") -> list[str]:
    """Return the findings of a node whose wrapper has the line, and which was started between the two times."""
    wrapper = "/usr/local/bin/start-kafka"
    host = FakeHost(
        command=f"{{ path={wrapper} ; argv[]={wrapper} ; ignore_errors=no }}",
        jvm="env \narg java\narg -Da=b c\nstarted 1650000000 0\n",
        changed={wrapper: OLD_FILE, "/etc/systemd/system/kafka.service": OLD_FILE, **(changed or {})},
    )
    host.files[TEMPLATE] = template
    host.files[wrapper] = f"#!/bin/sh\n{line}\nexec /opt/kafka/bin/kafka-server-start.sh {FILE}\n"
    state = runtime_on(host).host(NODE, [NEW])
    problems = host_problems(replace(SEPARATE, nodes=(NODE,)), catalogue(), {NODE.node_id: state}, (NEW,))
    return [f"{one.severity} {one.sentence}" for one in problems if one.code == "CONFIGURATION-REWRITTEN"]


@pytest.mark.parametrize(
    "line", [f"cp {TEMPLATE} {FILE}", f"sed 's/@ID@/1/' {TEMPLATE} > {FILE}", f"T={TEMPLATE}\nenvsubst < $T > {FILE}"]
)
def test_a_template_that_is_newer_than_the_process_blocks(line: str) -> None:
    (told,) = doubt(line, changed={TEMPLATE: NEW_FILE})
    assert told.startswith("blocker The next start of node 1 writes")
    assert f"{TEMPLATE} is newer than the process" in told
    (told,) = doubt(line)  # its time is unknown
    assert told.startswith("warning ")
    assert f"{TEMPLATE} can be newer than the process" in told
    assert doubt(line, changed={TEMPLATE: OLD_FILE}) == []


def test_a_script_or_unit_that_makes_the_configuration_and_is_newer_blocks() -> None:
    line = f"cat > {FILE} <<END\nnode.id=1\nEND"
    assert doubt(line) == []
    for path in ("/usr/local/bin/start-kafka", "/etc/systemd/system/kafka.service"):
        assert len(doubt(line, changed={path: NEW_FILE})) == 1


def test_a_newer_copy_of_the_same_lines_does_not_block() -> None:
    same = "# made by us\nnode.id=1\nlog.dirs=/data\n"
    assert doubt(f"install -m 640 {TEMPLATE} {FILE}", changed={TEMPLATE: NEW_FILE}, template=same) == []


def of_other_unit(line: str, *, time: str = NEW_FILE, setting: str = "Wants", **shown: str) -> list[tuple[str, str]]:
    """Return the findings of a node whose start runs another unit with the command."""
    unit = "/etc/systemd/system/kafka-config.service"
    helper = {
        "Type": "oneshot",
        "ActiveState": "inactive",
        "Result": "success",
        "ExecStart": f"{{ path=/bin/sh ; argv[]=/bin/sh -c {line} ; ignore_errors=no }}",
        "FragmentPath": unit,
        **shown,
    }
    host = FakeHost(
        depends={
            "kafka.service": {setting: "config.target"},
            "config.target": {"Wants": "c.service"},
            "c.service": helper,
        },
        jvm="env \narg java\narg -Da=b c\nstarted 1650000000 0\nend /etc/default/kafka\n",
        changed={TEMPLATE: time, unit: OLD_FILE, "/etc/systemd/system/kafka.service": OLD_FILE},
    )
    host.files[TEMPLATE] = "node.id=7\n"
    state = runtime_on(host).host(NODE, [NEW])
    problems = host_problems(replace(SEPARATE, nodes=(NODE,)), catalogue(), {NODE.node_id: state}, (NEW,))
    codes = ("CONFIGURATION-REWRITTEN", "START-WRITES-FILE", "START-REMOVES-DATA")
    return [(one.code, one.severity.value) for one in problems if one.code in codes]


BLOCKED = [("CONFIGURATION-REWRITTEN", "blocker")]


@pytest.mark.parametrize("setting", ["Wants", "Requires", "BindsTo"])
def test_another_unit_of_the_start_that_makes_the_configuration_counts_as_a_wrapper(setting: str) -> None:
    line = f"cp {TEMPLATE} {FILE}"
    assert of_other_unit(line, setting=setting) == BLOCKED
    assert of_other_unit(line, setting=setting, time=OLD_FILE) == []
    assert of_other_unit(line, setting="Requisite") == []  # it starts nothing


def test_such_a_unit_counts_if_the_next_start_runs_it() -> None:
    line = f"cp {TEMPLATE} {FILE}"
    assert of_other_unit(line, ActiveState="active") == []
    assert of_other_unit(line, LoadState="masked") == []
    assert of_other_unit(line, ActiveState="failed") == BLOCKED


def test_other_files_that_such_a_unit_writes_or_removes_are_named() -> None:
    assert of_other_unit("fetch > /etc/default/kafka") == [("START-WRITES-FILE", "warning")]
    assert of_other_unit(f"cp {TEMPLATE} /etc/default/kafka") == [("START-WRITES-FILE", "warning")]
    assert of_other_unit(f"cp {TEMPLATE} /etc/default/kafka", time=OLD_FILE) == []
    assert of_other_unit("rm -rf /data") == [("START-REMOVES-DATA", "blocker")]


def test_a_unit_that_stops_with_the_node_runs_again() -> None:
    helper = {"ExecStart": f"{{ path=/bin/cp ; argv[]=/bin/cp {TEMPLATE} {FILE} ; ignore_errors=no }}"}

    def writers(**own: str) -> tuple[str, ...]:
        host = FakeHost(depends={"kafka.service": {"Wants": "c.service", **own}, "c.service": helper})
        host.files[TEMPLATE] = "node.id=7\n"
        return runtime_on(host).host(NODE, [NEW]).writers

    assert writers(ConsistsOf="c.service") == (f"unit c.service: /bin/cp {TEMPLATE} {FILE}",)
    assert writers() == ()  # it is active, and stays so


def test_what_systemd_does_not_show_of_such_units_is_unknown() -> None:
    state = runtime_on(FakeHost(depends={"kafka.service": {"Wants": "c.service"}, "c.service": None})).host(NODE, [NEW])
    assert any(one.startswith("the commands of other units") for one in state.unknown)


@pytest.mark.parametrize("line", [f"render | tee {FILE}", f"curl -s https://config > {FILE}", f"echo $(id) > {FILE}"])
def test_a_program_whose_output_is_unknown_is_a_decision_of_the_approver(line: str) -> None:
    (told,) = doubt(line)
    assert told.startswith("warning ")
    assert "writes is unknown" in told


@pytest.mark.parametrize("path", ["/usr/local/bin/start-kafka", "/etc/systemd/system/kafka.service", TEMPLATE])
def test_such_a_program_blocks_if_what_it_is_given_is_newer(path: str) -> None:
    line = f"gomplate --file {TEMPLATE} --out {FILE}"
    assert [one.partition(" ")[0] for one in doubt(line, changed={TEMPLATE: OLD_FILE})] == ["warning"]
    (told,) = doubt(line, changed={path: NEW_FILE})
    assert told.startswith("blocker ")
    assert f"{path} is newer than the process" in told


def test_a_secret_in_such_a_command_is_not_shown(host: HostWithCommands) -> None:
    host.before = f"/bin/sh -c render --password=S3CRET > {FILE}"
    (found,) = host.writers()
    assert "S3CRET" not in found


def test_a_plan_warns_only_if_it_has_lines_for_the_node(host: HostWithCommands) -> None:
    state = HostState(
        name="kafka-1",
        unit="kafka.service",
        symlink="/opt/kafka",
        folders={NEW: f"/opt/kafka_2.13-{NEW}"},
        releases=frozenset({NEW}),
        symlink_can_switch=True,
        stop_timeout_s=900.0,
        writers=(f"unit kafka.service: envsubst < x > {FILE}",),
    )
    cluster = replace(SEPARATE, nodes=(host.node(),))
    lines = [ConfigChange(node_id=1, release=NEW, key="num.io.threads", value="16", reason="")]

    def found(changes: list[ConfigChange], one: HostState) -> list[str]:
        problems = host_problems(cluster, catalogue(), {1: one}, (NEW,), changes=changes)
        return [f"{each.severity} {each.sentence}" for each in problems if each.code == "CONFIGURATION-REWRITTEN"]

    (told,) = found(lines, state)
    assert told.startswith("warning A start of node 1 writes")
    assert "num.io.threads" in told
    assert found([], state) == []
    assert found(lines, replace(state, writers=())) == []
