"""Whether systemd starts the unit of a node again after its stop, as it shows the unit and its files."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.findings import Finding
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.nodes.runtimes.hosts.unit_state import ARGUMENTS
from kafka_rollout.planning.findings.stops import stop_findings
from kafka_rollout.planning.findings.unit_starts import unit_start_findings
from kafka_rollout.releases.facts import Release
from tests.fakes.host import CONFIGURATION, OWN, FakeHost
from tests.unit.nodes.runtimes.test_service import NODE, runtime_on

R431 = Release(4, 3, 1)
COMMAND = "{{ path=/bin/sh ; argv[]={} ; ignore_errors={} ; start_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }}"


def found(host: FakeHost) -> list[Finding]:
    return list(unit_start_findings(NODE, runtime_on(host).host(NODE, [R431])))


def shown(host: FakeHost) -> list[tuple[str, str]]:
    return [(one.code, one.severity.value) for one in found(host)]


# What systemd 252 shows of a unit with RefuseManualStart=yes, and of `systemd-run --unit=kafka`.
@pytest.mark.parametrize(
    ("host", "expected", "says"),
    [
        (FakeHost(), [], ""),
        (FakeHost(can_start="no"), [("UNIT-NOT-STARTABLE", "blocker")], "RefuseManualStart="),
        (FakeHost(transient="yes"), [("UNIT-NOT-STARTABLE", "blocker")], "as a file in /etc/systemd/system"),
        (
            FakeHost(unit_file="/run/systemd/transient/kafka.service"),
            [("UNIT-NOT-STARTABLE", "blocker")],
            "as a file in /etc/systemd/system",
        ),
        (
            FakeHost(unit_file="/run/systemd/system/kafka.service"),
            [("UNIT-NOT-STARTABLE", "warning")],
            "as a file in /etc/systemd/system",
        ),
        (FakeHost(unit_file="/run/systemd/generator.late/kafka.service"), [], ""),
    ],
)
def test_a_unit_that_systemd_would_not_start_again_is_found_before_its_stop(
    host: FakeHost, expected: list[tuple[str, str]], says: str
) -> None:
    assert shown(host) == expected
    assert all(says in one.remedy for one in found(host))


@pytest.mark.parametrize(
    ("host", "unknown"),
    [
        (FakeHost(can_start=""), "CanStart of the unit"),
        (FakeHost(transient=""), "Transient of the unit"),
        (FakeHost(unit_file=""), "FragmentPath of the unit"),
    ],
)
def test_what_systemd_does_not_show_of_the_unit_is_unknown(host: FakeHost, unknown: str) -> None:
    assert unknown in runtime_on(host).host(NODE, [R431]).unknown


def test_a_unit_that_another_one_upholds_cannot_be_stopped() -> None:
    (blocker,) = found(FakeHost(upheld_by="watch.service other.service"))
    assert (blocker.code, blocker.severity.value) == ("UNIT-UPHELD", "blocker")
    assert "watch.service, other.service on host kafka-1 has Upholds=kafka.service" in blocker.sentence


def test_a_unit_with_a_wrong_line_is_not_missing() -> None:
    with pytest.raises(UserError, match="LoadState=bad-setting") as raised:
        runtime_on(FakeHost(load_state="bad-setting")).unit(NODE)
    assert "systemd-analyze verify kafka.service" in raised.value.remedy
    with pytest.raises(UserError, match="has no unit kafka"):
        runtime_on(FakeHost(load_state="not-found")).unit(NODE)


def test_a_unit_whose_files_cannot_be_read_is_unknown() -> None:
    (unknown,) = [one for one in runtime_on(FakeHost(cats=False)).host(NODE, [R431]).unknown if "settings" in one]
    assert "Permission denied" in unknown


def test_a_condition_of_the_start_is_shown_without_credentials() -> None:
    text = "/bin/sh -c curl -sf -u ops:Pa55w0rd https://flags/maintenance"
    line = f"ExecCondition={COMMAND.format(text, 'no')}\n"
    (condition,) = found(FakeHost(jvm=f"env \narg java\narg -Da=b c\nshow {line}"))
    assert (condition.code, condition.severity.value) == ("START-CONDITION", "warning")
    assert "https://flags/maintenance" in condition.sentence
    assert "Pa55w0rd" not in f"{condition.sentence} {condition.covers}"
    assert shown(FakeHost(jvm=f"env \narg java\narg -Da=b c\nshow {line.replace('=no', '=yes')}")) == []


@pytest.mark.parametrize(
    ("setting", "command", "is_uncertain"),
    [
        ("ExecStartPre", "/usr/local/bin/fetch-keystore --from vault", True),
        ("ExecStartPost", "/usr/local/bin/register-node", True),
        ("ExecStartPre", "/bin/sh -c until nc -z ldap 636; do sleep 1; done", True),
        ("ExecStartPre", "/bin/sh -c mkdir -p /run/kafka && chown $(id -u kafka) /run/kafka", True),
        ("ExecStartPre", "/bin/sh -c mkdir -p /run/kafka && chown kafka /run/kafka", False),
        ("ExecStartPre", "/usr/bin/install -d -o kafka /run/kafka", False),
        ("ExecStartPre", "/opt/kafka/bin/kafka-storage.sh info -c /etc/kafka/x", False),
    ],
)
def test_a_command_of_the_site_is_a_condition_of_the_start_and_one_that_prepares_folders_is_none(
    setting: str, command: str, is_uncertain: bool
) -> None:
    line = f"{setting}={COMMAND.format(command, 'no')}\n"
    state = runtime_on(FakeHost(jvm=f"env \narg java\narg -Da=b c\nshow {line}")).host(NODE, [R431])
    conditions = [one for one in unit_start_findings(NODE, state) if one.code == "START-CONDITION"]
    assert [command in one.sentence for one in conditions] == [True] * is_uncertain


def test_what_such_a_command_needs_is_looked_at_on_the_host() -> None:
    def of(command: str, **host: object) -> list[tuple[str, str]]:
        line = f"ExecStartPre={COMMAND.format(command, 'no')}\n"
        return shown(replace(FakeHost(jvm=f"env \narg java\narg -Da=b c\nshow {line}"), **host))

    warning = [("START-CONDITION", "warning")]
    assert of("/bin/chown -R kafka /srv/data") == []
    assert of("/bin/chown -R kafka /srv/data", gone={"/srv/data"}) == warning
    assert of("/bin/chown -R kafka /srv/data", gone={"passwd kafka"}) == warning
    old, new = "1600000000/1600000000", "1700000000/1700000000"
    copies = "/usr/bin/install -m 640 /etc/pki/host.p12 /etc/kafka/ks.p12"
    started = (
        "env \narg java\narg -Da=b c\nstarted 1650000000 0\nshow " + f"ExecStartPre={COMMAND.format(copies, 'no')}\n"
    )
    assert shown(FakeHost(jvm=started, changed={"/etc/pki/host.p12": old})) == []
    assert shown(FakeHost(jvm=started, changed={"/etc/pki/host.p12": new})) == warning
    assert shown(FakeHost(jvm=started)) == warning


def test_a_wrapper_that_asks_before_kafka_is_a_condition() -> None:
    wrapper = "/usr/local/bin/start-kafka"
    host = FakeHost(command=f"{{ path={wrapper} ; argv[]={wrapper} ; ignore_errors=no }}")
    lines = "exec /opt/kafka/bin/kafka-server-start.sh /etc/kafka/server.properties\n"
    host.files[wrapper] = f"#!/bin/bash\nset -euo pipefail\nfetch keystore /etc/kafka/ks.p12\n{lines}"
    conditions = [one for one in found(host) if one.code == "START-CONDITION"]
    assert [one.covers for one in conditions] == [(f"{wrapper}: fetch keystore /etc/kafka/ks.p12",)]
    host.files[wrapper] = f"#!/bin/bash\nset -e\nmkdir -p /var/log/kafka\n{lines}"
    assert [one for one in found(host) if one.code == "START-CONDITION"] == []


@pytest.mark.parametrize("setting", ["ExecStartPre", "ExecStartPost"])
def test_a_command_that_removes_the_log_directory_blocks(setting: str) -> None:
    line = f"{setting}={COMMAND.format('/bin/rm -rf /data', 'yes')}\n"
    (blocker,) = found(FakeHost(jvm=f"env \narg java\narg -Da=b c\nshow {line}"))
    assert (blocker.code, blocker.severity.value) == ("START-REMOVES-DATA", "blocker")
    assert "`/bin/rm -rf /data` when it starts" in blocker.sentence


def test_what_changed_in_the_unit_since_the_start_of_the_process_is_not_proved_by_it() -> None:
    unit, drop_in = "/etc/systemd/system/kafka.service", "/etc/systemd/system/kafka.service.d/hardening.conf"
    text = (
        f"# {unit}\n[Service]\nType=simple\nLimitNOFILE=100000\nExecStart=/x\n\n"
        f"# {drop_in}\n[Service]\nMemoryDenyWriteExecute=yes\nLimitAS=1G\nSyslogIdentifier=kafka\n"
    )
    started = int(runtime_on(FakeHost()).unit(NODE).started_at or 0)
    older, newer = f"{started}/{started}", f"{started - 9}/{started + 1}"
    host = FakeHost(unit_text=text, changed={unit: older, drop_in: newer})
    (warning,) = found(host)
    assert (warning.code, warning.severity.value) == ("UNIT-SETTINGS-UNKNOWN", "warning")
    assert warning.covers == ("LimitAS=1G", "MemoryDenyWriteExecute=yes")
    assert found(replace(host, changed={unit: older, drop_in: older})) == []
    (unread,) = found(replace(host, changed={drop_in: older}))
    assert unread.covers == ("LimitNOFILE=100000", "Type=simple")


def test_a_drop_in_that_is_gone_leaves_no_setting_proved() -> None:
    unit, folder = "/etc/systemd/system/kafka.service", "/etc/systemd/system/kafka.service.d"
    text = f"# {unit}\n[Service]\nMemoryDenyWriteExecute=yes\nExecStart=/x\n"
    started = int(runtime_on(FakeHost()).unit(NODE).started_at or 0)
    older, newer = f"{started}/{started}", f"{started + 1}/{started + 1}"
    host = FakeHost(unit_text=text, changed={unit: older, folder: newer})
    (warning,) = found(host)
    assert (warning.code, warning.severity.value) == ("UNIT-SETTINGS-UNKNOWN", "warning")
    assert warning.covers == (f"(a file was added to {folder}, or removed)", "MemoryDenyWriteExecute=yes")
    assert found(replace(host, changed={unit: older, folder: older})) == []
    assert found(replace(host, changed={unit: older})) == []


def test_a_process_with_more_than_the_next_one_shows_that_a_line_is_gone() -> None:
    status = (
        "status Name:\tjava\nstatus NoNewPrivs:\t0\nstatus Seccomp:\t0\nlimit Max open files  100000  100000  files\n"
    )
    allowed = "MemoryDenyWriteExecute=no\nLimitNOFILE=524288\n"
    assert found(FakeHost(limits=f"{status}{allowed}")) == []
    (warning,) = found(FakeHost(limits=f"{status}{allowed.replace('=no', '=yes')}"))
    assert (warning.code, warning.severity.value) == ("NEXT-PROCESS-RESTRICTED", "warning")
    assert "MemoryDenyWriteExecute=yes keeps Java from starting" in warning.sentence
    assert shown(FakeHost(limits=f"{status}LimitNOFILE=1024\n")) == [("NEXT-PROCESS-RESTRICTED", "warning")]
    assert found(FakeHost(limits="LimitNOFILE=1024\n")) == []  # it does not run


@pytest.mark.parametrize(
    ("lines", "is_missing"),
    [
        ("pattern /etc/kafka/env.d/*.env (ignore_errors=no)\n", True),
        ("pattern /etc/kafka/env.d/*.env (ignore_errors=yes)\n", False),
        ("pattern /etc/kafka/env.d/*.env (ignore_errors=no)\nend /etc/kafka/env.d/a.env\n", False),
        ("pattern /etc/kafka/env.d/*.env (ignore_errors=no)\nend /etc/kafka/env.d/b/a.env\n", True),
        ("pattern /etc/kafka/env.d/*.env (ignore_errors=no)\nunread  /etc/kafka/env.d/*.env\n", False),
        ("pattern /etc/default/kafka (ignore_errors=no)\n", False),  # a path of a start
    ],
)
def test_a_pattern_of_environment_files_without_a_match_blocks(lines: str, is_missing: bool) -> None:
    problems = found(FakeHost(jvm=f"env \narg java\narg -Da=b c\n{lines}"))
    blockers = [one for one in problems if one.code == "START-PATH-MISSING"]
    assert [one.severity.value for one in blockers] == ["blocker"] * is_missing
    assert all("`EnvironmentFile=-/etc/kafka/env.d/*.env`" in one.remedy for one in blockers)


def test_the_shell_shows_each_pattern_of_a_unit() -> None:
    """systemd shows the files in one line, or in one line for each."""
    part = re.search(r"\| (sed [^|]*\| sed 's/\^/pattern /')", ARGUMENTS)
    assert part is not None
    text = "/etc/a (ignore_errors=yes) /etc/b/* (ignore_errors=no)\n"
    ran = subprocess.run(["sh", "-c", part[1]], input=text, capture_output=True, text=True, check=True)
    assert ran.stdout.split("\n")[:2] == ["pattern /etc/a (ignore_errors=yes) ", "pattern /etc/b/* (ignore_errors=no)"]


def test_a_unit_of_root_that_changes_the_user_itself_is_read_with_this_user() -> None:
    ids = "process Uid 65534 65534 65534 65534\nprocess Gid 65534 65534 65534 65534\nprocess Groups 7\nowner nobody\n"
    changed = FakeHost(user="root", of_process=ids)
    (data, *_) = runtime_on(changed).host(NODE, [R431]).writes
    assert data.access.user == "nobody"
    assert "cannot write /data" in data.access.refused
    (data, *_) = runtime_on(replace(changed, modes={"/data": "drwxrwx---. 1 0 7"})).host(NODE, [R431]).writes
    assert data.access.refused == ""
    for same in (replace(changed, of_process=""), replace(changed, of_process=ids.replace("65534", "0"))):
        (data, *_) = runtime_on(same).host(NODE, [R431]).writes
        assert (data.access.user, data.access.refused) == ("root", "")
    (data, *_) = runtime_on(replace(changed, user="kafka")).host(NODE, [R431]).writes
    assert data.access.user == "kafka"


def test_root_executes_the_wrapper_of_such_a_unit() -> None:
    wrapper = "/usr/local/sbin/start-kafka"
    ids = "process Uid 65534 65534 65534 65534\nprocess Gid 65534 65534 65534 65534\nowner nobody\n"
    host = FakeHost(
        user="root",
        of_process=ids,
        start=f"ExecStart={COMMAND.format(wrapper, 'no')}\n",
        modes={wrapper: "-rwx------. 1 0 0"},
    )

    def refused(host: FakeHost) -> list[bool]:
        paths = runtime_on(host).host(NODE, [R431]).start_paths
        return [bool(place.access.refused) for one in paths if one.path == wrapper for place in one.after.values()]

    assert refused(host) == [False]
    assert refused(replace(host, user="kafka")) == [True]


def test_a_variable_of_the_configuration_that_the_next_start_does_not_have_blocks() -> None:
    unit = "/etc/systemd/system/kafka.service"
    provider = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    old, new = "1600000000/1600000000", "1700000000/1700000000"

    def of(environment: str, time: str) -> list[tuple[str, str]]:
        host = FakeHost(jvm=f"env {environment}\narg java\narg -Da=b c\nstarted 1650000000 0\n", changed={unit: time})
        host.files[CONFIGURATION] = (
            f"node.id=1\nlog.dirs=/data\nconfig.providers=env\nconfig.providers.env.class={provider}\n"
            "broker.rack=${env:RACK}${env:NODE_ID}\n"
        )
        return [one for one in shown(host) if one[0] == "ENVIRONMENT-GONE"]

    assert of("", old) == [("ENVIRONMENT-GONE", "blocker")]
    assert of("RACK=a NODE_ID=1", old) == []
    assert of("RACK=a", old) == [("ENVIRONMENT-GONE", "blocker")]
    assert of("RACK=b NODE_ID=1", new) == [("ENVIRONMENT-GONE", "warning")]
    assert of("\nunread 1600000000 /etc/default/kafka", old) == [("ENVIRONMENT-GONE", "warning")]


def test_a_name_of_a_listener_that_the_host_has_forgotten_stops_the_plan() -> None:
    listeners = "listeners=OLD://broker-old.corp:9092,NEW://broker.corp:9093,ALL://:9094,ONE://10.77.0.11:9095"
    host = FakeHost(unresolved=["broker-old.corp"])
    host.files[CONFIGURATION] = f"node.id=1\nlog.dirs=/data\n{listeners}\n"
    (blocker,) = found(host)
    assert (blocker.code, blocker.severity.value) == ("LISTENER-UNRESOLVED", "blocker")
    assert "has the name broker-old.corp, and host" in blocker.sentence
    assert found(replace(host, unresolved=())) == []


def test_a_name_of_a_listener_that_leads_elsewhere_stops_the_plan() -> None:
    lines = "listeners=A://broker.corp:9092\ncontroller.quorum.voters=1@broker.corp:9093\n"
    host = FakeHost(resolves={"broker.corp": "10.99.0.1"})
    host.files[CONFIGURATION] = f"node.id=1\nlog.dirs=/data\n{lines}"
    (moved,) = found(host)
    assert (moved.code, moved.severity.value) == ("LISTENER-MOVED", "blocker")
    assert "broker.corp, which is 10.99.0.1 on host kafka-1. The host does not have this address" in moved.sentence
    assert found(replace(host, nonlocal_bind=1)) == []
    assert found(replace(host, resolves={})) == []
    by_installer = replace(host, resolves={"broker.corp": "127.0.1.1"})
    assert found(by_installer) == []  # the port is not open
    assert found(replace(by_installer, listens=["listens 0101007F:2384", "listens 0B004D0A:2385"])) == []
    for line, place in (("0B004D0A:2384", "10.77.0.11"), ("00000000000000000000000000000000:2384", "::")):
        (moved,) = found(replace(by_installer, listens=[f"listens {line}"]))
        assert f"which is 127.0.1.1 on host kafka-1. The process listens at {place}. After" in moved.sentence


def test_an_address_of_a_listener_that_the_host_has_lost_stops_the_plan() -> None:
    host = FakeHost()
    host.files[CONFIGURATION] = "node.id=1\nlog.dirs=/data\nlisteners=A://10.99.0.1:9092,B://[::1]:1,C://0.0.0.0:2\n"
    (moved,) = found(host)
    assert (moved.code, moved.severity.value) == ("LISTENER-MOVED", "blocker")
    assert "has the address 10.99.0.1, which host kafka-1 has lost. The host does not have" in moved.sentence
    assert "`ip address`" in moved.remedy
    host.files[CONFIGURATION] = f"node.id=1\nlog.dirs=/data\nlisteners=A://{OWN}:9092\n"
    assert found(host) == []
    host.files[CONFIGURATION] = "node.id=1\nlog.dirs=/data\nlisteners=A://10.99.0.1:9092\n"
    assert found(replace(host, nonlocal_bind=1)) == []


@pytest.mark.parametrize(
    ("lines", "asks"),
    [
        ("", True),  # PLAINTEXT://:9092
        ("listeners=A://:9092", True),
        ("listeners=A://broker.corp:9092", False),
        ("listeners=A://:9092\nadvertised.listeners=A://broker.corp:9092", False),
        ("listeners=A://:9092,B://:9093\nadvertised.listeners=A://broker.corp:9092", False),
        ("listeners=A://:9092\nadvertised.listeners=A://:9092", True),
        ("listeners=A://:9092,C://:9093\nadvertised.listeners=A://x:9092\ncontroller.listener.names=C", True),
    ],
)
def test_a_node_without_a_host_in_a_listener_needs_the_name_of_its_own_host(lines: str, asks: bool) -> None:
    host = FakeHost(own_name="code 2 h-unknown\n")
    host.files[CONFIGURATION] = f"node.id=1\nlog.dirs=/data\n{lines}\n"
    blockers = [one for one in found(host) if one.code == "LISTENER-UNRESOLVED"]
    assert [one.severity.value for one in blockers] == ["blocker"] * asks
    assert all("cannot resolve its own name h-unknown now" in one.sentence for one in blockers)


def test_another_name_of_the_host_than_the_cluster_has_blocks() -> None:
    state = runtime_on(FakeHost()).host(NODE, [R431])
    assert state.own_name == ("h", "h.corp", (9092,))
    (blocker,) = unit_start_findings(NODE, replace(state, registered_as="h-old.corp"))
    assert (blocker.code, blocker.severity.value) == ("OWN-NAME-CHANGED", "blocker")
    assert "That is h.corp now, and the cluster has h-old.corp for the node" in blocker.sentence
    assert list(unit_start_findings(NODE, replace(state, registered_as="h.corp"))) == []


def test_a_host_that_does_not_report_its_own_name_is_unknown() -> None:
    state = runtime_on(FakeHost(own_name="")).host(NODE, [R431])
    assert any("does not report its own name" in one for one in state.unknown)


def test_a_controller_that_the_host_does_not_resolve_is_named() -> None:
    host = FakeHost(unresolved=["c1", "c2"])
    host.files[CONFIGURATION] = "node.id=1\nlog.dirs=/data\ncontroller.quorum.voters=1@c1:9093,2@c2:9093,3@c3:9093\n"
    (warning,) = found(host)
    assert (warning.code, warning.severity.value) == ("CONTROLLER-UNRESOLVED", "warning")
    assert "cannot resolve c1, c2 in controller.quorum.voters" in warning.sentence
    host.files[CONFIGURATION] = "node.id=1\nlog.dirs=/data\ncontroller.quorum.bootstrap.servers=c1:9093,c2:9093\n"
    assert [one.severity.value for one in found(host)] == ["blocker"]
    host.files[CONFIGURATION] += "controller.quorum.voters=1@10.0.0.1:9093,2@c2:9093\n"
    assert [one.severity.value for one in found(host)] == ["warning"]


def test_a_condition_is_one_of_the_commands_before_a_start() -> None:
    line = f"ExecCondition={COMMAND.format('/opt/kafka/bin/kafka-storage.sh info -c /etc/kafka/x', 'no')}\n"
    state = runtime_on(FakeHost(jvm=f"env \narg java\narg -Da=b c\nshow {line}")).host(NODE, [R431])
    assert [one.split()[0].rpartition("/")[2] for one in state.start_commands] == ["kafka-storage.sh"]


def test_settings_that_no_check_reads_are_one_finding_that_an_approver_sees() -> None:
    text = "[Unit]\nStopWhenUnneeded=yes\n[Service]\nOpenFile=/etc/x:y\nRestart=always\n"
    state = runtime_on(FakeHost(unit_text=text)).host(NODE, [R431])
    (warning,) = unit_start_findings(NODE, state)
    assert (warning.code, warning.severity.value) == ("UNIT-SETTINGS-UNKNOWN", "warning")
    assert "`StopWhenUnneeded=yes`, `OpenFile=/etc/x:y`" in warning.sentence
    secret = replace(state, unknown_settings=("SetCredential=password:Pa55w0rd",))
    assert all("Pa55w0rd" not in str(one) for one in unit_start_findings(NODE, secret))


def test_what_systemd_does_on_the_host_at_each_stop_is_shown_before_the_stop() -> None:
    far = ClusterSpec(name="far", runtime="ssh_service", nodes=(NODE,))

    def of(text: str) -> list[tuple[str, str, tuple[str, ...], str]]:
        state = runtime_on(FakeHost(unit_text=text)).host(NODE, [R431])
        found = stop_findings(far, NODE, state)
        return [(one.code, one.severity.value, one.covers, one.remedy) for one in found]

    reboot, heal = of("[Unit]\nOnFailure=heal.service\nFailureAction=reboot-force\n")
    assert reboot[:3] == ("STOP-ACTS-ON-HOST", "blocker", ("FailureAction=reboot-force",))
    assert heal[:3] == ("STOP-ACTS-ON-HOST", "warning", ("OnFailure=heal.service",))
    assert all("Add `SuccessExitStatus=143`" in one[3] for one in (reboot, heal))
    assert of("[Unit]\nOnFailure=heal.service\n[Service]\nSuccessExitStatus=143\n") == []
    ((*_, remedy),) = of("[Unit]\nOnSuccess=next.service\n[Service]\nSuccessExitStatus=143\n")
    assert "Remove OnSuccess= from the unit" in remedy
