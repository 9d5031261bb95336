"""Nodes as systemd units, on a host in memory."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kafka_rollout.base.errors import (
    FatalError,
    NotObservableError,
    RefusedError,
    RolloutError,
    TransientError,
    UserError,
)
from kafka_rollout.base.findings import Finding
from kafka_rollout.model.host_state import DirectoryFormat, DirectoryIdentity, Elsewhere, StartFileKind
from kafka_rollout.model.plan import ConfigChange
from kafka_rollout.model.topology import ClusterSpec, HostCommand, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts import logs
from kafka_rollout.nodes.runtimes.hosts.commands import service_of
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.hosts.unit_state import ARGUMENTS, LEADS
from kafka_rollout.planning.findings.hosts import host_problems
from kafka_rollout.planning.findings.start_paths import start_path_findings
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.reported import identify_release
from tests.fakes.clock import FakeClock
from tests.fakes.host import CONFIGURATION, JAVA, FakeHost
from tests.fakes.local_host import without_root
from tests.paths import INCLUDE

CATALOGUE = load_catalogue(INCLUDE)
R421, R431 = Release(4, 2, 1), Release(4, 3, 1)
CHANGE = ConfigChange(node_id=1, release=R431, key="num.io.threads", value="9", reason="a test")
BACK = replace(CHANGE, release=R421, value=None)  # as a plan has it for the rollback


def node_of(**service: object) -> NodeSpec:
    return NodeSpec(
        node_id=1,
        name="kafka-1",
        roles=frozenset({Role.BROKER}),
        broker_address="kafka-1:9092",
        service=ServiceSpec(host="kafka-1", **service),
    )


NODE = node_of()


def identify(version: str) -> Release | None:
    return identify_release(version, load_catalogue(INCLUDE), {}).release


def runtime_on(host: FakeHost) -> SshServiceRuntime:
    clock = FakeClock()
    cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(NODE,))
    return SshServiceRuntime(cluster, host, identify, sleep=clock.sleep, monotonic=clock.monotonic)


def test_a_process_that_systemd_ends_is_stopping() -> None:
    host = FakeHost()
    assert runtime_on(host).process(NODE).is_stopping is False
    host.active, host.sub = "deactivating", "stop-sigterm"
    process = runtime_on(host).process(NODE)
    assert (process.pid, process.is_stopping) == (host.pid, True)


def test_the_running_release_is_that_of_the_loaded_jars_and_not_of_the_symlink() -> None:
    host = FakeHost(link="/opt/kafka_2.13-4.3.1")
    process = runtime_on(host).process(NODE)
    assert (process.pid, process.running, process.installed) == (50, R421, R431)


@pytest.mark.parametrize(("version", "running"), [("7.9.1-ccs", Release(3, 9, 0)), ("2026-mine", None)])
def test_a_jar_of_a_vendor_has_the_release_that_it_is_based_on(version: str, running: Release | None) -> None:
    process = runtime_on(FakeHost(loaded=version)).process(NODE)
    assert (process.version, process.running) == (version, running)


def test_a_roll_of_one_node_stops_installs_and_starts_it() -> None:
    host = FakeHost()
    runtime = runtime_on(host)
    runtime.stop(NODE, deadline_s=180)
    runtime.install(NODE, R431, [CHANGE])
    runtime.start(NODE)
    process = runtime.process(NODE)
    assert (process.pid, process.running, process.installed) == (51, R431, R431)
    assert [(start.release, start.pid) for start in runtime.starts(NODE)] == [(R431, 51)]
    assert runtime.config(NODE)["num.io.threads"] == "9"
    assert "num.io.threads" not in host.files[f"{CONFIGURATION}.4.2.1"]
    runtime.stop(NODE, deadline_s=180)
    runtime.install(NODE, R421, [BACK])
    assert host.files[CONFIGURATION] == "node.id=1\nlog.dirs=/data\n"


@pytest.mark.parametrize("cut", ["systemctl stop", "ln", "mv", "cp", "tee", "systemctl start"])
def test_a_connection_that_breaks_anywhere_leaves_a_state_from_which_a_repetition_finishes(cut: str) -> None:
    host = FakeHost(cut_after=cut)
    runtime = runtime_on(host)

    def roll() -> None:
        if not runtime.starts(NODE):
            runtime.stop(NODE, deadline_s=180)
        runtime.install(NODE, R431, [CHANGE])
        runtime.start(NODE)

    with pytest.raises(TransientError, match="cannot be reached"):
        roll()
    assert host.files[CONFIGURATION].startswith("node.id=1\n")
    if cut == "systemctl start":
        runtime.start(NODE)
    else:
        roll()
    assert runtime.process(NODE).running == R431
    assert [start.release for start in runtime.starts(NODE)] == [R431]
    assert host.started == 1


def test_a_shutdown_that_hangs_is_killed_only_when_an_approver_requests_it() -> None:
    host = FakeHost(hangs=True)
    with pytest.raises(FatalError, match="is still shutting down after 180 s"):
        runtime_on(host).stop(NODE, deadline_s=180)
    assert host.pid == 50
    runtime_on(host).stop(NODE, deadline_s=180, force=True)
    assert host.pid == 0


@pytest.mark.parametrize(
    ("link", "releases", "elsewhere"),
    [
        ("/opt/kafka_2.13-4.2.1", {"4.2.1"}, None),
        ("/opt/kafka_2.13-4.2.1-acme3", {"4.2.1"}, (True, True)),
        ("/opt/kafka_2.13-4.2.1-acme3", set(), (False, True)),
        ("/srv/kafka_2.13-4.2.1", {"4.2.1"}, (True, False)),
        ("/srv/kafka_2.13-4.2.1", set(), (False, False)),
        ("/gone/kafka_2.13-4.2.1", set(), (False, False)),
    ],
)
def test_a_link_to_another_folder_than_that_of_its_release_is_seen(
    link: str, releases: set[str], elsewhere: tuple[bool, bool] | None
) -> None:
    host = FakeHost(link=link, releases=releases)
    runtime = runtime_on(host)
    assert runtime.installation(NODE).link == link
    seen = runtime.host(NODE, [R431]).elsewhere
    folder = "/opt/kafka_2.13-4.2.1"
    expected = (
        None
        if elsewhere is None
        else Elsewhere(release=R421, link=link, folder=folder, folder_exists=elsewhere[0], can_return=elsewhere[1])
    )
    assert seen == expected


def test_a_link_is_led_back_to_where_it_came_from() -> None:
    host = FakeHost(link="/opt/kafka_2.13-4.2.1-acme3", pid=0, active="inactive", sub="dead")
    runtime = runtime_on(host)
    runtime.install(NODE, R431)
    assert host.link == "/opt/kafka_2.13-4.3.1"
    found = service_of(NODE).led_to(R421, "/opt/kafka_2.13-4.2.1-acme3")
    runtime.install(replace(NODE, service=found), R421)
    assert host.link == "/opt/kafka_2.13-4.2.1-acme3"
    assert [one for one in host.history if one.startswith("ln ")][-1] in {
        "ln -sfnT /opt/kafka_2.13-4.2.1-acme3 /opt/kafka.kafka-rollout"
    }


@pytest.mark.parametrize(
    "folder", ["/opt/kafka_2.13-4.2.12", "/opt/kafka_2.13-4.2.1-a/b", "/opt/kafka_2.13-4.2.1 -x", ""]
)
def test_no_right_leads_a_link_to_another_place(folder: str) -> None:
    assert service_of(NODE).led_to(R421, folder) is None


@dataclass(kw_only=True)
class PreparingHost(FakeHost):
    """A host whose unit has commands before the main process: it shows `looks` times that they run."""

    looks: int = 0
    fails: bool = False

    def _start(self) -> None:
        self.active, self.sub = "activating", "start-pre"

    def _show(self) -> str:
        if self.sub == "start-pre" and self.looks > 0:
            self.looks -= 1
        elif self.sub == "start-pre":
            self.active, self.sub = "failed", "failed"
            if not self.fails:
                super()._start()
        return super()._show()


def test_a_start_waits_for_the_commands_before_it() -> None:
    """Ten seconds are not enough for a wait for disks or DNS. Until the process begins, the unit shows the old one."""
    host = PreparingHost(active="inactive", sub="dead", pid=0, looks=200)
    runtime = runtime_on(host)
    runtime.start(NODE)
    assert runtime.process(NODE).pid == 51
    assert [start.pid for start in runtime.starts(NODE)] == [51]


def test_a_start_whose_commands_fail_is_not_recorded() -> None:
    host = PreparingHost(active="inactive", sub="dead", pid=0, looks=50, fails=True)
    runtime = runtime_on(host)
    runtime.start(NODE)
    assert runtime.process(NODE).pid is None
    assert runtime.starts(NODE) == ()


def test_a_restart_by_the_host_after_the_change_of_the_file_is_seen_before_the_switch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As by a .path unit that watches the file."""
    host = FakeHost()
    runtime = runtime_on(host)
    runtime.stop(NODE, deadline_s=180)
    write = SshServiceRuntime.write_configuration

    def write_watched(self: SshServiceRuntime, *words: Any) -> None:
        write(self, *words)
        host._start()

    monkeypatch.setattr(SshServiceRuntime, "write_configuration", write_watched)
    change = ConfigChange(node_id=1, release=R431, key="num.io.threads", value="9", reason="a test")
    with pytest.raises(FatalError, match=r"Something on host kafka-1 has started node kafka-1 .* as process 51"):
        runtime.install(NODE, R431, [change])
    assert host.link == "/opt/kafka_2.13-4.2.1"


@pytest.mark.parametrize(("loaded", "recorded"), [("4.2.1", [R421]), ("4.3.1", [R431]), ("", [])])
def test_a_process_that_the_host_has_started_is_recorded_with_the_release_of_its_jars(
    loaded: str, recorded: list[Release]
) -> None:
    host = FakeHost(link="/opt/kafka_2.13-4.3.1")
    host._start()
    host.loaded = loaded
    runtime = runtime_on(host)
    runtime.start(NODE)
    assert [start.release for start in runtime.starts(NODE)] == recorded


def test_a_unit_in_a_restart_loop_is_stopped_before_an_installation() -> None:
    host = FakeHost(active="activating", sub="auto-restart", pid=0, restarts=7)
    runtime = runtime_on(host)
    process = runtime.process(NODE)
    assert (process.pid, process.restarts) == (None, 7)
    runtime.install(NODE, R431)
    assert host.active == "inactive"
    assert host.link == "/opt/kafka_2.13-4.3.1"


@pytest.mark.parametrize(
    ("host", "error", "says"),
    [
        (FakeHost(active="inactive", pid=0, releases={"4.2.1"}), RefusedError, "no /opt/kafka_2.13-4.3.1/libs"),
        (FakeHost(active="inactive", pid=0, link_is_folder=True), UserError, "is not a symbolic link"),
        (FakeHost(), FatalError, "still runs as process 50, so nothing was installed"),
        (FakeHost(active="inactive", pid=0, refused={"dd"}), RefusedError, "cannot read its configuration"),
    ],
)
def test_an_installation_that_cannot_be_done_changes_nothing(host: FakeHost, error: type[Exception], says: str) -> None:
    files = dict(host.files)
    with pytest.raises(error, match=says):
        runtime_on(host).install(NODE, R431, [CHANGE])
    assert host.files == files
    assert host.link == "/opt/kafka_2.13-4.2.1"


def test_a_missing_right_is_named_with_its_line_of_sudoers() -> None:
    host = FakeHost(refused={"systemctl stop"})
    with pytest.raises(RefusedError, match="cannot stop it") as raised:
        runtime_on(host).stop(NODE, deadline_s=180)
    assert "(root) NOPASSWD: /usr/bin/systemctl stop --no-block kafka.service" in raised.value.remedy
    assert host.pid == 50


def test_a_configuration_that_is_managed_elsewhere_is_waited_for_and_never_written() -> None:
    host = FakeHost(active="inactive", pid=0)
    node = node_of(managed_elsewhere=True)
    with pytest.raises(TransientError, match=r"does not have the lines of 4\.3\.1 yet: num\.io\.threads"):
        runtime_on(host).install(node, R431, [CHANGE])
    assert host.link == "/opt/kafka_2.13-4.2.1"
    host.files[CONFIGURATION] += "num.io.threads=9\n"
    runtime_on(host).install(node, R431, [CHANGE])
    assert host.link == "/opt/kafka_2.13-4.3.1"
    assert not [line for line in host.history if line.startswith(("tee", "cp"))]


def test_the_operators_commands_run_before_the_stop_and_after_the_start() -> None:
    host = FakeHost()
    node = node_of(before_stop=(HostCommand(command="drain 1"),), after_start=(HostCommand(command="drain 0"),))
    runtime = runtime_on(host)
    runtime.prepare_stop(node)
    runtime.stop(node, deadline_s=180)
    runtime.prepare_stop(node)  # without a process
    runtime.finish_start(node)
    runtime.start(node)
    runtime.finish_start(node)
    assert [line.split()[0:2] for line in host.history if line.split()[0] in ("drain", "systemctl")] == [
        ["drain", "1"],
        ["systemctl", "stop"],
        ["systemctl", "start"],
        ["drain", "0"],
    ]


def test_a_command_that_fails_before_the_stop_stops_nothing() -> None:
    host = FakeHost()
    node = node_of(before_stop=(HostCommand(command="drain 1"), HostCommand(command="drain fail")))
    with pytest.raises(FatalError) as failed:
        runtime_on(host).prepare_stop(node)
    assert failed.value.sentence == f"Command 2 of before_stop of node {node.name} failed: no such backend."
    assert host.pid == 50


def test_clock_space_jars_and_arguments_of_a_host_are_read() -> None:
    runtime = runtime_on(FakeHost())
    runtime.now = iter([1_700_000_060.0, 1_700_000_061.0]).__next__
    facts = runtime.host(NODE, [R431]).facts
    assert facts.clock_skew_s == -59.5
    assert (facts.release_bytes, facts.arguments) == (900, ("java", "-Da=b c"))
    assert facts.loaded_jars == ("/opt/kafka_2.13-4.2.1/libs/kafka_2.13-4.2.1.jar",)
    assert facts.release_jars == {R431: frozenset({"kafka_2.13-4.3.1.jar", "new.jar"})}


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("1.9.5p2", "sudo 1.9.5p2"),
        ("1.9.9", "sudo 1.9.9"),
        ("1.8.31p1", "sudo 1.8.31p1"),
        ("1.9.10", ""),
        ("1.9.13p3", ""),
        ("sudo-rs 0.2.8", "sudo-rs 0.2.8"),
        ("?", ""),
    ],
)
def test_the_sudo_of_a_host_must_read_regular_expressions(version: str, old: str) -> None:
    assert runtime_on(FakeHost(sudo=version)).host(NODE, [R431]).old_sudo == old


def test_a_script_of_the_unit_that_was_changed_names_another_configuration_than_the_process() -> None:
    wrapper = "/usr/local/bin/start-kafka"
    host = FakeHost(command=f"{{ path={wrapper} ; argv[]={wrapper} ; ignore_errors=no ; }}", changed={wrapper: "5/7"})
    host.files[wrapper] = (
        "#!/bin/sh\nCONF=/etc/kafka/other.properties\nexec /opt/kafka/bin/kafka-server-start.sh $CONF\n"
    )
    runtime = runtime_on(host)
    paths = runtime.host(NODE, [Release(4, 3, 1)]).start_paths
    of_unit = [path.path for path in paths if path.kind is StartFileKind.CONFIGURATION and path.is_of_unit]
    assert of_unit == ["/etc/kafka/other.properties"]
    found = {file.path: (file.kind, file.changed_at) for file in runtime.start_files(NODE, {})}
    assert found[wrapper] == (StartFileKind.PROGRAM, 7.0)


def test_a_provider_file_that_only_lines_of_the_run_name_belongs_to_the_next_start() -> None:
    """Also if the lines of one release name the provider, and those of a later one the file."""
    new, name = "/etc/kafka/new.properties", "config.providers"
    provider = {name: "f", f"{name}.f.class": "org.apache.kafka.common.config.provider.FileConfigProvider"}
    lines, runtime = {"ssl.key.password": f"${{f:{new}:key}}"}, runtime_on(FakeHost(gone={new}))

    def missing(*changes: ConfigChange, releases: Sequence[Release] = (R431,), **how: bool) -> list[str]:
        seen = runtime.host(NODE, releases, changes=changes, **how)
        return [one.sentence for one in start_path_findings(NODE, seen, releases) if one.code == "START-PATH-MISSING"]

    def planned(lines: Mapping[str, str], release: Release = R431) -> list[ConfigChange]:
        return [ConfigChange(node_id=1, release=release, key=key, value=lines[key], reason="") for key in lines]

    assert missing() == []
    assert [new in one for one in missing(*planned(provider | lines))] == [True]
    assert [new in one for one in missing(*planned(provider | lines), returns=True)] == [True], "lines of before"
    assert missing(*planned(provider | lines), restarts=True) == [], "a restart changes no line"
    assert missing(*planned(provider, R421), *planned(lines)) == []
    assert len(missing(*planned(provider, R421), *planned(lines), releases=(R421, R431))) == 1
    runtime.cluster = replace(runtime.cluster, release_overrides={str(R431): provider | lines})
    assert [new in one for one in missing()] == [True]


@pytest.mark.parametrize(
    ("link", "there", "no_return"),
    [
        ("4.2.1", {"4.2.1", "4.3.1"}, None),
        ("4.3.1", {"4.2.1", "4.3.1"}, None),
        ("4.3.1", {"4.3.1"}, Release(4, 2, 1)),
        ("4.2.1", {"4.3.1"}, Release(4, 2, 1)),
    ],
)
def test_the_folder_of_the_release_that_runs_is_read_for_a_rollback(
    link: str, there: set[str], no_return: Release | None
) -> None:
    host = FakeHost(link=f"/opt/kafka_2.13-{link}", releases=there, loaded="4.2.1")
    state = runtime_on(host).host(NODE, [R431])
    assert state.no_return == no_return
    found = [
        (one.subject, one.severity.value)
        for one in host_problems(
            ClusterSpec(name="c", runtime="ssh_service", nodes=(NODE,)),
            load_catalogue(INCLUDE),
            {NODE.node_id: state},
            [R431],
        )
        if one.code == "RELEASE-NOT-ON-HOST"
    ]
    assert found == ([(f"node {NODE.node_id}, release 4.2.1, rollback", "blocker")] if no_return else [])
    for asked in (
        runtime_on(host).host(NODE, [R431], restarts=True),
        runtime_on(host).host(NODE, [R431], returns=True),
        runtime_on(host).host(NODE, [R431, Release(4, 2, 1)]),
        runtime_on(host).host(NODE, []),
    ):
        assert asked.no_return is None
    host.refused = {"ls"}
    assert runtime_on(host).host(NODE, [R431]).no_return == (no_return if link == "4.2.1" else None)


def test_an_agent_that_the_next_start_has_and_that_does_not_exist_is_a_blocker() -> None:
    agent = "-javaagent:/opt/agents/a.jar=7071:/opt/agents/a.yml"
    host = FakeHost(
        command="{ path=/x ; argv[]=/opt/kafka/bin/kafka-server-start.sh /etc/x ; ignore_errors=no ; }",
        jvm=f"env KAFKA_OPTS={agent}\narg java\narg -javaagent:/opt/agents/old.jar\narg kafka.Kafka\narg /etc/x\n",
    )

    def missing() -> list[Finding]:
        found = start_path_findings(NODE, runtime_on(host).host(NODE, [R431]), [R431])
        return [one for one in found if one.code == "START-PATH-MISSING"]

    assert missing() == []
    host.gone = {"/opt/agents/old.jar"}
    assert missing() == [], "only the process names it"
    host.gone = {"/opt/agents/a.jar", "/opt/agents/a.yml"}
    assert [one.severity.value for one in missing()] == ["blocker", "blocker"]


def test_what_a_start_writes_is_read() -> None:
    wrapper = "/usr/local/bin/start-kafka"
    host = FakeHost(command=f"{{ path={wrapper} ; argv[]={wrapper} ; ignore_errors=no ; }}")
    host.files[wrapper] = "#!/bin/sh\nexec /opt/kafka/bin/kafka-server-start.sh /etc/x > /opt/kafka/kafka.log\n"
    state = runtime_on(host).host(NODE, [R431])
    assert [(write.release, write.path) for write in state.writes] == [
        (R431, "/data"),
        (R431, "/opt/kafka/kafka.log"),
        (R431, "/tmp"),  # noqa: S108 - of the host
    ]


def test_jars_that_were_removed_under_the_process_are_a_known_state() -> None:
    jar, plugin = "/opt/kafka_2.13-4.2.1/libs/kafka_2.13-4.2.1.jar", "/opt/plugins/my-reporter-1.0.jar"
    host = FakeHost(jar_mark=" (deleted)", other_files=f"35 -> {plugin} (deleted)\n", present={jar})
    runtime = runtime_on(host)
    assert runtime.process(NODE).running == R421
    cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(NODE,))
    for releases, restarts in ([R431], False), ([R421], True):
        state = runtime.host(NODE, releases, restarts=restarts)
        assert "the jars that the process has opened" not in state.unknown
        assert (state.facts.replaced_jars, state.facts.removed_jars) == ((jar,), (plugin,))
        found = {one.subject: one for one in host_problems(cluster, CATALOGUE, {1: state}, releases, restarts=restarts)}
        replaced, removed = found["node 1, replaced jars"], found["node 1, removed jars"]
        assert (replaced.code, replaced.severity.value, removed.severity.value) == (
            "JARS-REPLACED",
            "warning",
            "warning",
        )
        assert (jar in replaced.sentence, plugin in removed.sentence) == (True, True)
        assert f"node 1, release {releases[0]}" in found, "FOREIGN-JARS names the plugin too"
    assert "the jars that the process has opened" in runtime_on(FakeHost(loaded="x y")).host(NODE, [R431]).unknown


def test_the_script_and_the_signal_of_a_stop_are_read() -> None:
    shown = "ExecStop={ path=/etc/init.d/kafka ; argv[]=/etc/init.d/kafka stop ; ignore_errors=no ; }"
    host = FakeHost(jvm="env SIGNAL=KILL\n", capabilities=f"\n{shown}")
    host.files["/etc/init.d/kafka"] = "#!/bin/sh\n# kill\nkill -9 $PID\n"
    state = runtime_on(host).host(NODE, [Release(4, 3, 1)])
    assert (state.stop.signal, state.stop.lines) == ("KILL", (("/etc/init.d/kafka", "kill -9 $PID"),))


def test_the_files_of_the_next_start_are_those_that_unit_process_and_configuration_name() -> None:
    start = (
        "FragmentPath=/etc/systemd/system/kafka.service\nDropInPaths=/etc/systemd/system/kafka.service.d/a.conf\n"
        "EnvironmentFiles=/etc/default/kafka (ignore_errors=yes)\n"
        "arg java\narg -Dlog4j2.configurationFile=file:/etc/kafka/log4j2.yaml\n"
        "arg -cp\narg /opt/plugins/*:/gone/x.jar\n"
        "arg -Djava.security.auth.login.config=/etc/kafka/jaas.conf\n"
    )
    changed = {
        "/etc/kafka/server.properties": "100/200",
        "/etc/systemd/system/kafka.service": "300/100",
        "/etc/systemd/system/kafka.service.d/a.conf": "5/5",
        "/etc/default/kafka": "6/6",
        "/etc/kafka/log4j2.yaml": "7/7",
        "/opt/plugins": "8/8",
        "/etc/kafka/jaas.conf": "",
        "/keys/a b.jks": "9/9",
        "/keys/unused.jks": "9/9",
        "/data/meta.properties": "10/10",
    }
    config = (
        "log.dirs=/data\nlisteners=X://:9093\nlistener.security.protocol.map=X:SASL_SSL\n"
        "listener.name.x.ssl.keystore.location=/keys/a b.jks\nssl.truststore.location=${file:/a:b}\n"
        "listener.name.unused.ssl.keystore.location=/keys/unused.jks\n"
    )
    host = FakeHost(start=start, changed=changed)
    host.files[CONFIGURATION] = config
    runtime = runtime_on(host)
    found = {file.path: (file.kind, file.changed_at) for file in runtime.start_files(NODE, runtime.config(NODE))}
    kinds = StartFileKind
    assert found == {
        "/etc/kafka/server.properties": (kinds.CONFIGURATION, 200.0),
        "/etc/systemd/system/kafka.service": (kinds.UNIT, 300.0),
        "/etc/systemd/system/kafka.service.d/a.conf": (kinds.UNIT, 5.0),
        "/etc/default/kafka": (kinds.UNIT, 6.0),
        "/etc/kafka/log4j2.yaml": (kinds.LOGGING, 7.0),
        "/opt/plugins": (kinds.JAR, 8.0),
        "/etc/kafka/jaas.conf": (kinds.KEYS, None),
        "/keys/a b.jks": (kinds.KEYS, 9.0),
        "/data/meta.properties": (kinds.IDENTITY, 10.0),
    }


def test_of_a_file_that_does_not_exist_the_time_of_the_nearest_folder_is_read() -> None:
    start = "EnvironmentFiles=/etc/default/kafka (ignore_errors=yes) /etc/default/own/x (ignore_errors=yes)\n"
    start += "EnvironmentFiles=/hidden/x (ignore_errors=yes)\n"
    host = FakeHost(start=start, changed={CONFIGURATION: "1/2", "/etc/default": "70/90", "/hidden": "", "/etc": "5/5"})
    found = {one.path: (one.changed_at, one.is_absent) for one in runtime_on(host).start_files(NODE, {})}
    assert found == {
        CONFIGURATION: (2.0, False),
        "/etc/default/kafka": (70.0, True),
        "/etc/default/own/x": (70.0, True),
        "/hidden/x": (None, True),
    }


@pytest.mark.parametrize(("value", "changed_at"), [("a", 200.0), ("b", 300.0)])
def test_a_setting_that_the_unit_has_changed_makes_the_configuration_as_new_as_the_unit(
    value: str, changed_at: float
) -> None:
    """The values of secrets are compared by the time of their file alone."""
    unit = "/etc/systemd/system/kafka.service"
    command = f"/opt/kafka/bin/kafka-server-start.sh {CONFIGURATION} --override ssl.key.password={value}"
    host = FakeHost(
        start=f"FragmentPath={unit}\n{_PROCESS}arg --override\narg ssl.key.password=a\n",
        changed={CONFIGURATION: "100/200", unit: "300/100"},
        command=f"{{ path=/x ; argv[]={command} ; ignore_errors=no ; }}",
    )
    found = {file.path: file.changed_at for file in runtime_on(host).start_files(NODE, {})}
    assert found == {CONFIGURATION: changed_at, unit: 300.0}


def test_arguments_of_the_jvm_are_those_of_the_process_and_of_the_units_environment() -> None:
    hidden = "env \narg java\narg -Da=b c\nshow ExecStart=\n"
    assert runtime_on(FakeHost(jvm=hidden)).jvm_arguments(NODE, R431) == ("java", "-Da=b c")
    unit = 'env "KAFKA_OPTS=-Da=1 -Db=2" KAFKA_HEAP_OPTS=-Xmx1g\narg java\n'
    assert runtime_on(FakeHost(jvm=unit)).jvm_arguments(NODE, R431) == ("java", "-Xmx1g", "-Da=1", "-Db=2")
    assert runtime_on(FakeHost(jvm="env KAFKA_OPTS=-Da=1\n")).jvm_arguments(NODE, R431) == ("-Da=1",), "it is stopped"
    cut = 'env "KAFKA_OPTS=-Da=1\n'
    with pytest.raises(TransientError, match="arguments of the process of unit kafka"):
        runtime_on(FakeHost(jvm="env \n")).jvm_arguments(NODE, R431)
    with pytest.raises(RefusedError, match="unknown in part: unit kafka"):
        runtime_on(FakeHost(jvm=cut)).jvm_arguments(NODE, R431)


def test_an_option_that_was_removed_from_the_environment_since_the_start_does_not_count() -> None:
    unit = "env KAFKA_HEAP_OPTS=-Xmx6g\narg java\narg -Xmx6g\narg -Da=1\narg kafka.Kafka\narg /etc/x\n"
    start = "{ argv[]=/opt/kafka/bin/kafka-server-start.sh /etc/x ; ignore_errors=no ; }"
    host = FakeHost(jvm=unit, command=start)
    assert runtime_on(host).jvm_arguments(NODE, R431) == ("java", "-Xmx6g")
    (gone,) = runtime_on(host).host(NODE, [R431]).options[R431].gone
    assert gone.option == "-Da=[hidden]"
    wrapper = FakeHost(jvm=unit, command=start.replace("/opt/kafka/bin/kafka-server-start.sh", "/usr/bin/wrapper"))
    assert "-Da=1" in runtime_on(wrapper).jvm_arguments(NODE, R431)


def test_a_file_with_the_environment_of_the_unit_is_part_of_the_options() -> None:
    unit = "env KAFKA_OPTS=-Da=1 KAFKA_HEAP_OPTS=-Xmx1g\n"
    files = 'set # heap\nset KAFKA_HEAP_OPTS="-Xms2g \\\nset -Xmx2g"\nset LOG_DIR=/logs\nend /etc/default/kafka\n'
    assert runtime_on(FakeHost(jvm=unit + files)).jvm_arguments(NODE, R431) == ("-Xms2g", "-Xmx2g", "-Da=1")


def test_quotes_inside_a_value_stay_as_the_node_gets_them() -> None:
    """systemd reads quotes at the begin of a value alone, and kafka-run-class.sh removes none."""
    files = 'set KAFKA_OPTS=-Durls="https://idp/token"\nend /etc/default/kafka\n'
    files += "set # note \\\nset KAFKA_OPTS=-Dx\nend /etc/other\n"
    assert runtime_on(FakeHost(jvm=files.partition("set #")[0])).jvm_arguments(NODE, R431) == (
        '-Durls="https://idp/token"',
    )
    with pytest.raises(RefusedError, match="unknown in part: /etc/other on host kafka-1 has a comment that ends"):
        runtime_on(FakeHost(jvm=files)).jvm_arguments(NODE, R431)


@pytest.mark.parametrize(
    ("started", "changed", "known"), [("100", "90", True), ("100", "110", False), ("100", "", False), ("", "90", False)]
)
def test_options_in_a_file_that_the_ssh_user_cannot_read_are_known_only_from_a_process_that_read_it(
    started: str, changed: str, known: bool
) -> None:
    process = f"env \narg java\narg -Da=1\n{f'started {started}' if started else ''}\n"
    text = f"{process}unread {changed} /etc/kafka/secret.env\n"
    if known:
        assert runtime_on(FakeHost(jvm=text)).jvm_arguments(NODE, R431) == ("java", "-Da=1")
        return
    runtime = runtime_on(FakeHost(jvm=text))
    for ask in (lambda: runtime.jvm_arguments(NODE, R431), lambda: runtime.jvm_problems(NODE, (R431,))):
        with pytest.raises(RefusedError, match=r"unknown in part.*/etc/kafka/secret.env"):
            ask()


def test_the_shell_finds_readable_files_and_those_that_can_exist(tmp_path: Path) -> None:
    read, gone, closed = tmp_path / "read.env", tmp_path / "gone.env", tmp_path / "closed"
    read.write_text("KAFKA_OPTS=-Da=1")
    closed.symlink_to("closed")  # a folder that cannot be entered, also for root
    os.mkfifo(tmp_path / "pipe.env")
    missing = tmp_path / "sysconfig" / "kafka"  # `EnvironmentFile=-/etc/sysconfig/kafka` on Debian
    files = [read, gone, closed / "hidden.env", missing, tmp_path / "pipe.env"]
    systemctl = tmp_path / "systemctl"
    shown = "\n".join(f"{path} (ignore_errors=no)" for path in files)
    answers = f"*MainPID*) echo {os.getpid()};; *EnvironmentFiles*) echo '{shown}';; *) echo A=b;;"
    systemctl.write_text(f"#!/bin/sh\ncase $* in {answers} esac\n")
    systemctl.chmod(0o755)
    line = ARGUMENTS.format(unit="kafka")
    shell = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    lines = subprocess.run(
        ["sh", "-c", line], env=shell, capture_output=True, text=True, check=True, timeout=20
    ).stdout.splitlines()
    assert [one for one in lines if one.startswith(("env", "set", "end"))] == [
        *("env A=b", "set KAFKA_OPTS=-Da=1", f"end {read}"),
    ]
    unread = [one for one in lines if one.startswith("unread")]
    changed = int((tmp_path / "pipe.env").stat().st_ctime)
    assert unread == [
        f"unread  {closed / 'hidden.env'}",
        f"unread {changed} {tmp_path / 'pipe.env'}",
    ]
    (started,) = [int(one.split()[1]) for one in lines if one.startswith("started")]
    assert 0 <= time.time() - started < 86_400


def test_a_pattern_of_environment_files_is_expanded_as_systemd_does(tmp_path: Path) -> None:
    """A file of a folder that cannot be listed is unread; a pattern that matches nothing has no file."""
    folder, closed = tmp_path / "env.d", tmp_path / "closed.d"
    for name in "20-b c.conf", "10-a.conf", ".hidden.conf", "other.txt":
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(f"KAFKA_OPTS=-Da={name[:2]}\n")
    for one in closed, tmp_path / "by" / "host":
        one.mkdir(parents=True)
        (one / "kafka.conf").write_text("KAFKA_HEAP_OPTS=-Xmx1g\n")
    closed.chmod(0o111)
    patterns = ["env.d/*.conf", "env.d/*.none", "gone.d/*", "closed.d/*.conf", "b[xy]/*/kafka.conf"]
    shown = "\n".join(f"{tmp_path}/{one} (ignore_errors=yes)" for one in patterns)
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f"#!/bin/sh\ncase $* in *EnvironmentFiles*) echo '{shown}';; *) echo A=b;; esac\n")
    systemctl.chmod(0o755)
    for above in tmp_path, *tmp_path.parents:
        if above.name.startswith(("test_", "pytest-", "popen-")):  # pytest's own folders have mode 0700
            above.chmod(0o755)
    shell = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [*without_root(), "sh", "-c", ARGUMENTS.format(unit="kafka")]
    lines = subprocess.run(words, env=shell, capture_output=True, text=True, check=True, timeout=20).stdout.splitlines()
    assert [one for one in lines if one.startswith(("set", "end", "unread"))] == [
        *("set KAFKA_OPTS=-Da=10", f"end {folder}/10-a.conf", "set KAFKA_OPTS=-Da=20", f"end {folder}/20-b c.conf"),
        f"unread  {closed}/*.conf",
        *("set KAFKA_HEAP_OPTS=-Xmx1g", f"end {tmp_path}/by/host/kafka.conf"),
    ]


def test_the_shell_shows_all_that_is_on_the_way_from_a_link_to_its_end(tmp_path: Path) -> None:
    tools, other = tmp_path / "tools", tmp_path / "other"
    tools.mkdir()
    (tools / "install-2").write_text("")
    (tools / "install").symlink_to("./install-2")
    other.symlink_to("tools")
    link = tmp_path / "bin"
    link.symlink_to(f"{other}/../other/install")
    ran = subprocess.run(["sh", "-c", f"{LEADS}walk {link}"], capture_output=True, text=True, check=True)
    seen = {line.partition("/")[2].partition("/")[2].partition("/")[2] for line in ran.stdout.splitlines()}
    assert {str(one) for one in (link, other, tools, tools / "install", tools / "install-2", tmp_path)} <= seen
    link.unlink()
    link.symlink_to(link)
    assert subprocess.run(["sh", "-c", f"{LEADS}walk {link}"], capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("java", [f"{JAVA}/bin/java", f"{JAVA}/bin/java (deleted)", f"{JAVA}/jre/bin/java"])
@pytest.mark.parametrize("pid", [50, 0])
def test_java_is_read_from_its_files_and_never_executed(java: str, pid: int) -> None:
    host = FakeHost(java=java, pid=pid)
    assert runtime_on(host).java_version(NODE, (R431,)) == 11


def test_the_version_of_java_8_is_8() -> None:
    host = FakeHost()
    host.files[f"{JAVA}/release"] = 'JAVA_VERSION="1.8.0_392"\n'
    assert runtime_on(host).java_version(NODE, (R431,)) == 8


@pytest.mark.parametrize(
    ("path", "mode", "owner"),
    [(f"{JAVA}/release", 0o100644, "kafka"), ("/usr/lib/jvm", 0o40777, "root"), (JAVA, 0o40755, "kafka")],
)
def test_a_java_that_the_user_of_the_node_can_change_is_unknown(path: str, mode: int, owner: str) -> None:
    host = FakeHost(owners={path: (mode, owner)})
    with pytest.raises(UserError, match=f"is unknown: {path} on host kafka-1 can be changed by kafka"):
        runtime_on(host).java_version(NODE, (R431,))


def test_a_java_without_a_release_file_is_unknown() -> None:
    host = FakeHost(java="/opt/java/bin/java")
    with pytest.raises(NotObservableError, match="there is no /opt/java/release"):
        runtime_on(host).java_version(NODE, (R431,))


@pytest.mark.parametrize(
    ("line", "unread"),
    [
        ("[2026-11-28 20:15:00,123] INFO  Started (kafka.A)", 0),
        ('{"level":"INFO","message":"Started","logger":"kafka.A"}', 2),
        ("", 0),
    ],
)
def test_a_log_in_which_gates_can_read_no_line_is_known_before_the_run(line: str, unread: int) -> None:
    text = f"{line}\n\tat a.B\n" if line else ""
    assert runtime_on(FakeHost(journal=(0, text, ""))).host(NODE, [R431]).unread_log == unread
    node = node_of(log_file="/var/log/kafka/server.log")
    host = FakeHost()
    host.files["/var/log/kafka/server.log"] = text
    assert runtime_on(host).host(node, [R431]).unread_log == unread
    assert runtime_on(FakeHost(journal=(0, text, ""), pid=0)).host(NODE, [R431]).unread_log == 0


def test_what_a_host_does_not_report_is_unknown() -> None:
    assert runtime_on(FakeHost()).host(NODE, [R431]).unknown == ()
    host = FakeHost(
        free="", home="", stop="", listed=(1, "", "sudo: a password is required"), journal=(1, "", "no"), loaded="x"
    )
    host.mounted = ""
    change = ConfigChange(node_id=1, release=R431, key="num.io.threads", value="9", reason="")
    assert runtime_on(host).host(NODE, [R431], changes=[change]).unknown == (
        "the free space of /etc/kafka",
        "TimeoutStopSec of the unit",
        "whether the file system of /opt and /etc/kafka is mounted read-only (`findmnt`)",
        "the rights of the SSH user (`sudo -n -l`)",
        "the free space of the home folder of the SSH user",
        "the journal of kafka.service",
    )


@pytest.mark.parametrize(
    ("command", "unknown"),
    [
        ("sudo -n -u kafka /usr/bin/stat", (f"owner and mode of /, /etc, /etc/kafka, {CONFIGURATION}, /opt",)),
        (
            "systemctl show",
            (
                "the units that systemd stops with kafka.service (`systemctl show`)",
                "the units that kafka.service requires (`systemctl show`)",
                "the commands of other units that a start of kafka.service runs (`systemctl show`)",
                "what else starts through /opt/kafka (`systemctl show`, /proc/*/cmdline)",
            ),
        ),
        ("sudo -n -u kafka /usr/bin/ls", ("the jars that the process has opened",)),
        ("echo free", ("the command line of the process", "the free space for a release")),
    ],
)
def test_a_command_that_fails_leaves_what_it_reports_unknown(
    monkeypatch: pytest.MonkeyPatch, command: str, unknown: tuple[str, ...]
) -> None:
    node, run = node_of(install=HostCommand(command="install {release}")), FakeHost.run

    def fail(self: FakeHost, host: str, words: str | list[str], **options: Any) -> Done:
        line = words if isinstance(words, str) else shlex.join(words)
        if line.startswith(command):
            return Done(1, b"", "Input/output error")
        return run(self, host, words, **options)

    host = FakeHost(releases={"4.2.1"})
    assert runtime_on(host).host(node, [R431]).unknown == ()
    monkeypatch.setattr(FakeHost, "run", fail)
    assert runtime_on(host).host(node, [R431]).unknown == unknown


@pytest.mark.parametrize(
    ("cause", "says"),
    [
        ("namespace", "a user namespace of its own (PrivateUsers=yes"),
        ("capabilities", "AmbientCapabilities= of its unit"),
    ],
)
def test_a_process_that_the_kernel_hides_has_the_release_and_the_jars_of_its_command_line(
    cause: str, says: str
) -> None:
    libs = "/opt/kafka/bin/../libs"
    words = [
        "java",
        "-cp",
        f"/opt/plugins/a.jar:{libs}/kafka_2.13-4.2.1.jar:{libs}/kafka-clients-4.2.1.jar",
        "kafka.Kafka",
    ]
    host = FakeHost(hidden=cause, hidden_words=words)
    runtime = runtime_on(host)
    assert runtime.process(NODE).running == R421
    state = runtime.host(NODE, [R431])
    assert state.unknown == ()
    assert state.facts.loaded_jars == (
        "/opt/plugins/a.jar",
        "/opt/kafka/libs/kafka_2.13-4.2.1.jar",
        "/opt/kafka/libs/kafka-clients-4.2.1.jar",
    )
    cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(NODE,))
    (found,) = (one for one in host_problems(cluster, CATALOGUE, {1: state}, [R431]) if one.code == "PROCESS-HIDDEN")
    assert (found.severity.value, says in found.sentence) == ("info", True)
    host.hidden_words = ["java", "-cp", "/opt/kafka/libs/*", "kafka.Kafka"]
    (unknown,) = runtime_on(host).host(NODE, [R431]).unknown
    assert unknown.startswith("the jars that the process has opened, because it ")
    assert says in unknown
    host.hidden = ""
    assert runtime_on(host).host(NODE, [R431]).unknown == ("the jars that the process has opened",)


def test_owners_of_the_files_that_a_run_changes_are_read() -> None:
    host = FakeHost(owners={"/etc/kafka": (0o40750, "kafka")})
    paths = {path.path: (path.owner, path.mode) for path in runtime_on(host).host(NODE, [R431]).paths}
    assert paths.keys() == {"/", "/etc", "/etc/kafka", CONFIGURATION, "/opt"}
    assert (paths["/etc/kafka"], paths["/opt"]) == (("kafka", 0o40750), ("root", 0o40755))


def test_the_host_of_a_node_is_described_before_anything_is_stopped() -> None:
    host = FakeHost(releases={"4.2.1"}, refused={"ln", "tee"})
    files = dict(host.files)
    seen = runtime_on(host).host(NODE, [R431])
    assert (seen.releases, seen.symlink_can_switch, seen.stop_timeout_s) == (frozenset(), True, 300.0)
    assert [line.split()[2].rsplit("/", 1)[-1] for line in seen.denied] == ["ln", "tee", "tee"]
    assert seen.free_bytes == 900_000
    assert (host.files, host.pid) == (files, 50)


def test_a_description_of_a_host_has_one_reading_of_the_configuration() -> None:
    host, lines = FakeHost(), list[str]()
    host.on_command = lines.append
    runtime_on(host).host(NODE, [R431])
    read = "if=/etc/kafka/server.properties"
    assert [line for line in lines if read in line.split() and "-l" not in line.split()] == [
        "sudo -n -u kafka /usr/bin/dd if=/etc/kafka/server.properties iflag=nonblock bs=1M status=none"
    ]


def test_a_configuration_that_is_no_file_is_refused() -> None:
    """What a FIFO prints without a writer."""
    host = FakeHost(files={"/etc/kafka/server.properties": ""})
    with pytest.raises(RefusedError, match=r"/etc/kafka/server\.properties on host kafka-1 is empty, or is a FIFO"):
        runtime_on(host).config(NODE)


def test_a_log_that_is_no_file_is_refused_before_it_is_read() -> None:
    node, lines = node_of(log_file="/var/log/kafka/pipe"), list[str]()
    host = FakeHost(mode="11a4", files={"/var/log/kafka/pipe": "", "/etc/kafka/server.properties": "node.id=1\n"})
    host.on_command = lines.append
    runtime = runtime_on(host)
    with pytest.raises(RefusedError, match="/var/log/kafka/pipe on host kafka-1 is not a file"):
        runtime.log_tail(node)
    runtime.host(node, [R431])
    assert not [line for line in lines if "/tail" in line and "-l" not in line.split()]


def test_the_formats_of_directories_are_read_as_the_user_of_the_node() -> None:
    meta = "cluster.id=A\nnode.id=1\n"
    host = FakeHost(files={"/data/meta.properties": meta})
    runtime = runtime_on(host)
    config = {"log.dirs": "/data,/new"}
    assert runtime.directory_formats(NODE, config) == {
        "/data": DirectoryFormat(
            meta=meta.encode(), identity=DirectoryIdentity(path="/data", cluster_id="A", is_of_metadata=True)
        ),
        "/new": DirectoryFormat(),
    }
    host.unreadable["/data/meta.properties"] = "Input/output error"
    assert (
        runtime.directory_formats(NODE, config)["/data"].problem
        == "dd: failed to open '/data/meta.properties': Input/output error"
    )
    host.refused.add("dd")
    assert runtime.directory_formats(NODE, config)["/new"].problem == (
        "sudo refuses (kafka) NOPASSWD: /usr/bin/dd if\\=/new/meta.properties iflag\\=nonblock bs\\=1M status\\=none"
    )


@pytest.mark.parametrize("answers", ["", "rbash: restricted", "Welcome!\nasked 20", "0\n1"])
def test_rights_that_were_not_asked_for_are_not_there(answers: str) -> None:
    with pytest.raises(RefusedError, match="does not report which commands sudo permits"):
        runtime_on(FakeHost(sudo_answers=answers)).host(NODE, [R431])


@pytest.mark.parametrize(
    ("journal", "kind"),
    [
        ((1, "", "Failed to open files: Bad message"), TransientError),
        ((1, "", "sh: 1: journalctl: not found"), RefusedError),
        (
            (0, "-- No entries --\n", "Hint: You are currently not seeing messages from other users and the system."),
            RefusedError,
        ),
    ],
)
def test_a_journal_that_cannot_be_read_is_not_an_empty_log(
    journal: tuple[int, str, str], kind: type[RolloutError]
) -> None:
    with pytest.raises(kind, match=r"The journal of unit kafka\.service on host kafka-1 cannot be read"):
        runtime_on(FakeHost(journal=journal)).log_tail(NODE)


LOG = "/var/log/kafka/server.log"
LOGS = node_of(log_file=LOG)


def restart(host: FakeHost, node: NodeSpec) -> SshServiceRuntime:
    runtime = runtime_on(host)
    runtime.stop(node, deadline_s=180)
    runtime.start(node)
    return runtime


def test_a_log_file_is_read_from_the_byte_where_it_ended_before_the_start() -> None:
    host = FakeHost()
    host.files[LOG] = "of the earlier process\n" * 30
    runtime = restart(host, LOGS)
    host.files[LOG] += "first\nsecond\n"
    part = runtime.process_log(LOGS)
    assert part is not None
    assert (part.pid, part.lines, part.is_first, part.problem) == (51, ("first", "second"), True, "")
    host.files[LOG] += "third\n"
    later = runtime.process_log(LOGS, part.position)
    assert later is not None
    assert (later.lines, later.is_first) == (("third",), False)
    assert runtime.log_tail(LOGS, own=True) == ("first", "second", "third")
    host.files[LOG], host.inodes[LOG] = "of a new file\n", 8
    rotated = runtime.process_log(LOGS, later.position)
    assert rotated is not None
    assert (rotated.lines, rotated.problem) == (("of a new file",), "was rotated before it was read")


def test_a_log_file_that_the_first_start_makes_is_read_from_its_begin() -> None:
    host = FakeHost()
    runtime = restart(host, LOGS)
    host.files[LOG] = "first\n"
    part = runtime.process_log(LOGS)
    assert part is not None
    assert (part.lines, part.problem) == (("first",), "")


def test_a_log_file_that_sudo_does_not_permit_is_never_an_empty_log() -> None:
    host = FakeHost()
    host.files[LOG] = "of the earlier process\n"
    runtime = restart(host, LOGS)
    host.refused = {"tail"}
    with pytest.raises(RefusedError, match=r"cannot read its log"):
        runtime.process_log(LOGS)


def test_a_process_that_systemd_started_has_no_known_begin_in_a_log_file() -> None:
    host = FakeHost()
    host.files[LOG] = "whose line?\n"
    part = runtime_on(host).process_log(LOGS)
    assert part is not None
    assert part.lines == ()
    assert "has no known place where its process begins" in part.problem
    assert runtime_on(host).log_tail(LOGS, own=True) == ()


def test_the_journal_is_read_by_the_process_and_its_start_time() -> None:
    """Both are journald's: no client of Kafka writes them. Lines of systemd and of earlier processes are others'."""
    host = FakeHost(journal=(0, "first\nsecond\n-- cursor: s=1;i=7\n", ""))
    runtime = restart(host, NODE)
    part = runtime.process_log(NODE)
    assert part is not None
    assert (part.lines, part.position, part.is_first, part.problem) == (("first", "second"), "s=1;i=7", True, "")
    (asked,) = [line for line in host.history if "--show-cursor" in line]
    assert f"--since @{int(runtime.process(NODE).started_at or 0)} _PID=51" in asked
    host.journal = (0, "-- No entries --\n", "")
    host.dropped = "Suppressed 9 messages from kafka.service\nSuppressed 9 messages from other.service\n"
    later = runtime.process_log(NODE, part.position)
    assert later is not None
    assert (later.lines, later.position) == ((), "s=1;i=7")
    assert "journald has suppressed messages" in later.problem
    assert any("--after-cursor" in line and "s=1;i=7" in line for line in host.history)
    host.dropped = "Suppressed 9 messages from other.service\n"
    assert runtime.process_log(NODE, part.position).problem == ""  # type: ignore[union-attr]


def test_a_long_journal_is_read_in_parts_that_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 60)
    monkeypatch.setattr(logs, "_MOST_ENTRIES", 150)
    entries = [
        {"__CURSOR": "s=1;i=1", "MESSAGE": "first"},
        {"__CURSOR": "s=1;i=2", "MESSAGE": list(b"caf\xe9\nsecond")},
        {"__CURSOR": "s=1;i=3", "MESSAGE": "third"},
    ]
    host = FakeHost(journal=(0, "x" * 60, ""))
    host.entries = "".join(f"{json.dumps(one)}\n" for one in entries)[:150]
    runtime = restart(host, NODE)
    part = runtime.process_log(NODE)
    assert part is not None
    assert (part.lines, part.position, part.is_cut) == (("first", "caf\ufffd", "second"), "s=1;i=2", True)
    assert any("--output=json" in line and "head --bytes 150" in line for line in host.history)
    host.entries = f"{json.dumps(entries[2])}\n"
    last = runtime.process_log(NODE, part.position)
    assert last is not None
    assert (last.lines, last.position, last.is_cut) == (("third",), "s=1;i=3", False)
    assert any("--output=json" in line and "--after-cursor 's=1;i=2'" in line for line in host.history)
    host.entries = "-- No entries --\n"
    removed = runtime.process_log(NODE, last.position)
    assert removed is not None
    assert (removed.lines, removed.position, removed.is_cut) == ((), "s=1;i=3", False)
    assert removed.problem == "was rotated before it was read"


def test_an_entry_of_a_journal_that_is_longer_than_a_reading_is_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_BYTES", 60)
    monkeypatch.setattr(logs, "_MOST_ENTRIES", 150)
    host = FakeHost(journal=(0, "x" * 60, ""))
    host.entries = json.dumps({"MESSAGE": "y" * 300, "__CURSOR": "s=1;i=4"})[:150]
    host.cursors = "".join(json.dumps({"_PID": "51", "__CURSOR": f"s=1;i={one}"}) + "\n" for one in (4, 5))
    part = restart(host, NODE).process_log(NODE)
    assert part is not None
    assert (part.lines, part.position, part.is_cut) == ((), "s=1;i=4", True)
    assert part.problem == "has a line of more than 16 MiB, which was left out"


def test_the_last_lines_of_a_process_alone_are_those_of_its_id() -> None:
    host = FakeHost(journal=(0, "Error occurred during initialization of VM\n", ""))
    runtime = restart(host, NODE)
    host.history.clear()
    assert runtime.log_tail(NODE, lines=5, own=True) == ("Error occurred during initialization of VM",)
    (asked,) = host.history
    assert "_PID=51" in asked
    runtime = restart(host, LOGS)
    assert runtime.log_tail(LOGS, own=True) == ("Error occurred during initialization of VM",), "it wrote no log file"


_EXEC = "exec { path=/opt/kafka/bin/kafka-server-start.sh ; argv[]=/opt/kafka/bin/kafka-server-start.sh "
_PROCESS = "arg java\narg -Xmx1g\narg kafka.Kafka\narg /etc/kafka/server.properties\n"


@pytest.mark.parametrize(
    ("command", "overridden"),
    [
        (f"{_PROCESS}arg --override\narg log.dirs=/other\narg --override=broker.rack=a=b\n", {"broker.rack": "a=b"}),
        (f"{_EXEC}/etc/kafka/server.properties --override log.dirs=/other ; ignore_errors=no ; }}\n", {}),
        (f"{_PROCESS}arg --override\narg log.dirs=/other\narg --override\narg sasl=a\rb\n", {"sasl": "a\nb"}),
        (f"{_EXEC}/x --override log.dirs=/other ; }}\n{_PROCESS}arg --override\narg log.dirs=/old\n", {}),
        (f"{_EXEC}/x --override log.dirs=/other ; }}\n{_PROCESS}arg --override\narg broker.rack=a\n", {}),
        (f"{_EXEC}/x --override log.dirs=/other ; }}\narg bash\narg kafka-server-start.sh\n", {}),
    ],
    ids=[
        "of the process",
        "of the unit",
        "of several lines",
        "changed since the process started",
        "removed since the process started",
        "before it runs Kafka",
    ],
)
def test_overrides_of_the_command_line_are_a_part_of_the_configuration(
    command: str, overridden: dict[str, str]
) -> None:
    """kafka-server-start.sh FILE --override KEY=VALUE: the node runs with the file and with its overrides."""
    runtime = runtime_on(FakeHost(command=command))
    assert runtime.config(NODE) == {"node.id": "1", "log.dirs": "/other", **overridden}
    assert runtime_on(FakeHost(command=_PROCESS)).config(NODE) == {"node.id": "1", "log.dirs": "/data"}


@pytest.mark.parametrize(
    ("command", "environment", "expected"),
    [
        ("/opt/kafka/bin/kafka-server-start.sh /etc/x --override log.dirs=${DISK}", "DISK=/new", "/new"),
        ("/opt/kafka/bin/kafka-server-start.sh /etc/x $MORE", "MORE=--override log.dirs=/new", "/new"),
        ("/opt/kafka/bin/kafka-server-start.sh /etc/x $MORE", "X=y", "/data"),
        ("/opt/kafka/bin/kafka-server-start.sh /etc/x $STATE_DIRECTORY", "X=y", "/old"),
        ("/usr/local/bin/start /etc/x", "DISK=/new", "/new"),
        ("/usr/local/bin/start /etc/x", "X=y", "/old"),
    ],
)
def test_overrides_with_variables_are_those_of_the_environment_of_now(
    command: str, environment: str, expected: str
) -> None:
    shown = f"exec {{ path=/x ; argv[]={command} ; ignore_errors=no ; }}\n"
    host = FakeHost(
        command=f"{shown}{_PROCESS}arg --override\narg log.dirs=/old\n",
        jvm=f'env "{environment}"\n{shown.replace("exec ", "show ExecStart=")}arg java\n',
    )
    host.files["/usr/local/bin/start"] = (
        '#!/bin/sh\nexec /opt/kafka/bin/kafka-server-start.sh "$1" --override log.dirs=$DISK\n'
    )
    assert runtime_on(host).config(NODE)["log.dirs"] == expected


LATIN = "# gr\xfc\xdfe\r\nssl.keystore.password=p\xe4ss\r\nnode.id=1\n# page 4\x0clog.dirs=/old\nlog.dirs=/data\n"


def stopped(**more: object) -> FakeHost:
    return FakeHost(active="inactive", pid=0, **more)  # type: ignore[arg-type]


def test_every_byte_of_a_configuration_stays_and_comes_back() -> None:
    host = stopped(files={CONFIGURATION: LATIN})
    runtime = runtime_on(host)
    runtime.install(NODE, R431, [CHANGE])
    assert host.files[CONFIGURATION].startswith(LATIN)
    assert runtime.config(NODE) == {
        "ssl.keystore.password": "p\xe4ss",
        "node.id": "1",
        "log.dirs": "/data",
        "num.io.threads": "9",
    }
    runtime.install(NODE, R421, [BACK])
    assert host.files[CONFIGURATION] == LATIN


def test_the_lines_of_an_earlier_run_stay_in_the_next_one_and_in_its_rollback() -> None:
    host = stopped(link="/opt/kafka_2.13-4.3.1")
    runtime = runtime_on(host)
    earlier = ConfigChange(node_id=1, release=R421, key="num.network.threads", value="5", reason="a test")
    runtime.install(NODE, R421, [earlier])
    before = host.files[CONFIGURATION]
    runtime.install(NODE, R431, [CHANGE])
    assert runtime.config(NODE) == {
        "node.id": "1",
        "log.dirs": "/data",
        "num.io.threads": "9",
        "num.network.threads": "5",
    }
    for _ in range(2):  # a repeated step
        runtime.install(NODE, R421, [BACK])
        assert host.files[CONFIGURATION] == before


@pytest.mark.parametrize("changed", [CONFIGURATION, f"{CONFIGURATION}.4.2.1"])
def test_a_rollback_keeps_what_an_operator_has_changed_since(changed: str) -> None:
    host = stopped()
    runtime = runtime_on(host)
    runtime.install(NODE, R431, [CHANGE])
    host.files[changed] = f"# operator\n{host.files[changed]}"
    runtime.install(NODE, R421, [BACK])
    expected = "node.id=1\nlog.dirs=/data\n"
    assert host.files[CONFIGURATION] == (f"# operator\n{expected}" if changed == CONFIGURATION else expected)


def test_a_configuration_that_did_not_arrive_whole_does_not_replace_the_file() -> None:
    host = stopped(disk=10)
    with pytest.raises(FatalError, match="did not arrive whole on host kafka-1"):
        runtime_on(host).install(NODE, R431, [CHANGE])
    assert host.files[CONFIGURATION] == "node.id=1\nlog.dirs=/data\n"
    assert host.link == "/opt/kafka_2.13-4.2.1"


STARTS = ".kafka-rollout/starts-far-1.jsonl"


@pytest.mark.parametrize("torn", ['{"release": "4.3', "\0" * 40, '{"release": 4}', "[1]", '{"release": "x", "pid": 1}'])
def test_a_torn_line_of_the_starts_does_not_stop_a_resume(torn: str) -> None:
    whole = '{"release": "4.2.1", "pid": 9, "started_at": 1.5}\n'
    host = FakeHost(files={STARTS: whole + torn, CONFIGURATION: ""})
    runtime = runtime_on(host)
    assert [start.pid for start in runtime.starts(NODE)] == [9]
    runtime.start(NODE)
    assert host.files[STARTS].startswith(f"{whole}{torn}\n")
    assert [start.pid for start in runtime.starts(NODE)] == [9, 50]
