"""Units and processes of others that start through the link of a node, or from its package."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.model.host_state import HostState, LinkUser
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, PackageSpec
from kafka_rollout.planning.findings.stops import stop_findings
from kafka_rollout.releases.facts import Release
from tests.fakes.host import FakeHost
from tests.unit.nodes.runtimes.test_service import NODE, runtime_on

OWN = "Id=kafka.service\nNames=kafka.service\nExecStart={ path=/opt/kafka/bin/kafka-server-start.sh ; argv[]=x }"
UNKNOWN = "what else starts through /opt/kafka (`systemctl show`, /proc/*/cmdline)"
KNOWN = "Processes=known\nUser=997\nPrivileged=no\n"


def names(state: HostState) -> list[str]:
    return [one.name for one in state.link_users]


def read(*shown: str) -> HostState:
    return runtime_on(FakeHost(services="\n\n".join(shown) + "\n")).host(NODE, [Release(4, 3, 1)])


@pytest.mark.parametrize(
    ("line", "is_user"),
    [
        (
            "ExecStart={ path=/opt/kafka/bin/connect-distributed.sh ; argv[]=/opt/kafka/bin/connect-distributed.sh }",
            True,
        ),
        ("ExecStart={ path=/bin/sh ; argv[]=/bin/sh -c exec /opt/kafka/bin/kafka-mirror-maker.sh ; ignore=no }", True),
        ("ExecStartPre={ path=/bin/cp ; argv[]=/bin/cp /opt/kafka/libs/x.jar /tmp ; ignore=no }", True),
        ("WorkingDirectory=/opt/kafka", True),
        ("Environment=KAFKA_HOME=/opt/kafka LANG=C", True),
        ("ExecStart={ path=/opt/kafka-exporter/run ; argv[]=/opt/kafka-exporter/run ; ignore=no }", False),
        ("ExecStart={ path=/opt/kafka_2.13-3.9.1/bin/connect-distributed.sh ; argv[]=x }", False),
        ("ExecStart={ path=/srv/opt/kafka/run ; argv[]=x }", False),
    ],
)
def test_a_unit_uses_the_link_if_its_command_folder_or_environment_names_it(line: str, is_user: bool) -> None:
    state = read(f"Id=connect.service\nNames=connect.service\n{line}", OWN)
    assert (names(state), UNKNOWN in state.unknown) == (["connect.service"] if is_user else [], False)


def test_a_unit_that_is_stopped_and_not_enabled_is_not_loaded_until_it_is_named() -> None:
    state = read("Id=connect.service\nNames=connect.service\nWorkingDirectory=/opt/kafka")
    assert (names(state), UNKNOWN in state.unknown) == (["connect.service"], False)


def test_if_systemd_does_not_show_all_units_the_others_are_unknown() -> None:
    connect = "Id=connect.service\nExecStart={ path=/opt/kafka/bin/connect-distributed.sh }"
    without = {"kafka.service": None}
    cut = FakeHost(services=connect, shows=False)
    hidden = FakeHost(services=f"{OWN}\n", processes="User=997\n")
    for host in (cut, FakeHost(services=connect, depends=without), FakeHost(depends=without), hidden):
        assert UNKNOWN in runtime_on(host).host(NODE, [Release(4, 3, 1)]).unknown


def test_they_are_named_with_the_way_out() -> None:
    state = read(
        OWN, "Id=connect.service\nWorkingDirectory=/opt/kafka", "Id=mm2.service\nWorkingDirectory=/opt/kafka/bin"
    )
    (found,) = stop_findings(ClusterSpec(name="far", runtime="ssh_service", nodes=(NODE,)), NODE, state)
    assert (found.code, found.severity.value) == ("LINK-SHARED", "warning")
    assert "connect.service, mm2.service start through /opt/kafka too" in found.sentence
    assert "a link of its own" in found.remedy
    assert found.remedy.endswith(
        "stop connect.service, mm2.service before the step of node 1, and start connect.service, mm2.service after it."
    )


def test_another_node_of_the_cluster_is_never_to_be_stopped_outside_the_run() -> None:
    state = read(OWN, "Id=other.service\nWorkingDirectory=/opt/kafka", "Id=mm2.service\nWorkingDirectory=/opt/kafka")
    assert NODE.service is not None
    other = replace(NODE, node_id=9, service=replace(NODE.service, unit="other.service"))
    far = ClusterSpec(name="far", runtime="ssh_service", nodes=(NODE, other))
    (both,) = stop_findings(far, NODE, state)
    assert "mm2.service, other.service start through" in both.sentence
    assert "`symlink` of node 9" in both.remedy
    assert both.remedy.endswith("Otherwise stop mm2.service before the step of node 1, and start mm2.service after it.")
    (alone,) = stop_findings(far, NODE, replace(state, link_users=(LinkUser(name="other.service"),)))
    assert "stop" not in alone.remedy


def process(*words: str, unit: str = "kafka-b.service", pid: int = 77, more: str = "") -> str:
    shown = "".join(f"Word={pid} {word}\n" for word in words)
    return f"Sees={pid} 998 other\nService={pid} {unit}\n{shown}{more}"


def kafka(class_path: str, **named: str) -> str:
    return process("java", "-Xmx1g", "-cp", class_path, "kafka.Kafka", "/etc/b.properties", **named)


FOLDER = "/opt/kafka_2.13-4.2.1"
B = "kafka-b.service (/etc/b.properties), a Kafka that is not a node of this cluster"


def found_of(host: FakeHost, node: NodeSpec = NODE, *others: NodeSpec) -> list[tuple[str, str]]:
    """The severities and sentences."""
    state = runtime_on(host).host(node, [Release(4, 3, 1)])
    far = ClusterSpec(name="far", runtime="ssh_service", nodes=(node, *others))
    return [(one.severity.value, one.sentence) for one in stop_findings(far, node, state) if one.code == "LINK-SHARED"]


@pytest.mark.parametrize(
    ("class_path", "unit", "shown"),
    [
        ("/opt/kafka/bin/../libs/kafka_2.13-4.2.1.jar:/opt/kafka/bin/../libs/x.jar", "", f"{B}, starts through"),
        ("/opt/kafka/libs/*", "", f"{B}, starts through"),
        ("/opt/kafka-b/bin/../libs/kafka_2.13-4.2.1.jar", "", ""),
        ("/srv/kafka/libs/*", "", ""),
        # The wrapper can have followed the link, or the unit can name the folder.
        (f"{FOLDER}/libs/kafka_2.13-4.2.1.jar", "", f"whether {B}, starts through /opt/kafka too"),
        (f"{FOLDER}/libs/*", f"ExecStart={{ path={FOLDER}/bin/kafka-server-start.sh ; argv[]=x }}", ""),
        ("bin/../libs/kafka_2.13-4.2.1.jar", "", f"whether {B}, starts through /opt/kafka too"),
    ],
)
def test_a_kafka_of_another_cluster_is_seen_by_its_class_path_and_blocks(
    class_path: str, unit: str, shown: str
) -> None:
    text = f"Id=kafka-b.service\nNames=kafka-b.service\n{unit or 'ExecStart={ path=/usr/local/bin/run-b }'}"
    host = FakeHost(services=f"{text}\n\n{OWN}\n", processes=KNOWN + kafka(class_path), loaded="4.2.1")
    found = found_of(host)
    assert [severity for severity, _ in found] == (["blocker"] if shown else [])
    assert shown in "".join(sentence for _, sentence in found)


def test_a_kafka_in_a_container_and_one_without_a_unit() -> None:
    path = "/opt/kafka/libs/*"
    assert found_of(FakeHost(processes=KNOWN + kafka(path, more="Root=77 0:52 /\n"))) == []
    ((severity, sentence),) = found_of(
        FakeHost(processes=KNOWN + kafka(path).replace("Service=77 kafka-b.service\n", ""))
    )
    assert (severity, "process 77 (/etc/b.properties), a Kafka that is not" in sentence) == ("blocker", True)


def test_connect_is_a_warning_and_another_node_of_the_inventory_too() -> None:
    connect = process(
        "/usr/bin/java", "-cp", "/opt/kafka/libs/*", "org.apache.kafka.connect.cli.ConnectDistributed", unit="c.service"
    )
    ((severity, sentence),) = found_of(FakeHost(processes=KNOWN + connect))
    assert (severity, "c.service starts through /opt/kafka too" in sentence) == ("warning", True)
    assert NODE.service is not None
    other = replace(NODE, node_id=9, service=replace(NODE.service, unit="kafka-b.service", configuration_file="/etc/b"))
    ((severity, _),) = found_of(FakeHost(processes=KNOWN + kafka("/opt/kafka/libs/*")), NODE, other)
    assert severity == "warning"


def test_a_stopped_unit_that_starts_kafka_through_the_link_blocks() -> None:
    unit = "Id=kafka-b.service\nExecStart={ path=/opt/kafka/bin/kafka-server-start.sh ; argv[]=x }"
    ((severity, sentence),) = found_of(FakeHost(services=f"{unit}\n\n{OWN}\n"))
    assert (severity, "kafka-b.service, a Kafka that is not a node" in sentence) == ("blocker", True)


RUN_B = "Id=kafka-b.service\nExecStart={ path=/usr/local/bin/run-b ; argv[]=/usr/local/bin/run-b ; ignore=no }"
BY_VARIABLE = "exec ${KAFKA_HOME}/bin/kafka-server-start.sh /etc/b.properties"
SHELL_B = f"Id=kafka-b.service\nExecStart={{ path=/bin/sh ; argv[]=/bin/sh -c {BY_VARIABLE} ; ignore=no }}"
ENVIRONMENT = "EnvironmentFiles=/etc/default/kafka-b (ignore_errors=no)"
SCRIPT, DEFAULTS = "/usr/local/bin/run-b", "/etc/default/kafka-b"


@pytest.mark.parametrize(
    ("unit", "files", "severity", "named"),
    [
        (RUN_B, {SCRIPT: "#!/bin/sh\nexec /opt/kafka/bin/kafka-server-start.sh /etc/b"}, "blocker", SCRIPT),
        (RUN_B, {SCRIPT: f". {DEFAULTS}\n{BY_VARIABLE}", DEFAULTS: "KAFKA_HOME=/opt/kafka"}, "blocker", DEFAULTS),
        (
            RUN_B,
            {SCRIPT: "exec /srv/inner", "/srv/inner": "java -cp '/opt/kafka/libs/*' kafka.Kafka"},
            "blocker",
            "/srv/i",
        ),
        (f"{SHELL_B}\n{ENVIRONMENT}", {DEFAULTS: "KAFKA_HOME=/opt/kafka"}, "blocker", DEFAULTS),
        (f"{SHELL_B}\n{ENVIRONMENT}", {DEFAULTS: "KAFKA_HOME=/opt/kafka-b"}, "", ""),
        (
            RUN_B,
            {SCRIPT: "exec /opt/kafka/bin/connect-distributed.sh /etc/c"},
            "warning",
            "kafka-b.service starts through",
        ),
        (RUN_B, {SCRIPT: "tar -c /opt/kafka /etc # kafka-server-start"}, "", ""),
        (RUN_B, {}, "", ""),
    ],
)
def test_a_stopped_unit_that_hides_the_link_in_a_file_is_seen_by_it(
    unit: str, files: dict[str, str], severity: str, named: str
) -> None:
    host = FakeHost(services=f"{unit}\n\n{OWN}\n")
    host.files |= files
    found = found_of(host)
    assert [one for one, _ in found] == ([severity] if severity else [])
    assert named in "".join(sentence for _, sentence in found)


def test_a_file_that_the_ssh_user_cannot_read_hides_a_stopped_kafka_only() -> None:
    def of(unit: str, **more: str) -> list[tuple[str, str]]:
        return found_of(FakeHost(services=f"{unit}\n\n{OWN}\n", unreadable={SCRIPT: "Permission denied"}, **more))

    ((severity, sentence),) = of(RUN_B)
    assert (severity, f"cannot read {SCRIPT}, which it reads or runs" in sentence) == ("blocker", True)
    assert of(f"{RUN_B}\nActiveState=active") == [], "no process of Java runs there"
    assert of(RUN_B.replace("kafka-b", "backup")) == []
    assert of(RUN_B, processes=KNOWN + kafka("/srv/b/libs/*")) == [], "its class path shows where it starts"


@pytest.mark.parametrize(
    ("own", "is_user"), [("/usr/bin/kafka-server-start", True), ("/srv/kafka-server-start", False)]
)
def test_a_stopped_kafka_of_the_package_is_seen_by_its_start_program(own: str, *, is_user: bool) -> None:
    assert NODE.service is not None
    package = PackageSpec(install=("/usr/bin/apt-get", "install", "kafka={version}"))
    node = replace(NODE, service=replace(NODE.service, package=package))
    units = f"{RUN_B}\n\nId=kafka.service\nNames=kafka.service\nExecStart={{ path={own} ; argv[]={own} /etc/a }}\n"
    host = FakeHost(package=["4.2.1"], services=units)
    host.files[SCRIPT] = "exec /usr/bin/kafka-server-start /etc/kafka-b/server.properties"
    assert [one for one, _ in found_of(host, node)] == (["blocker"] if is_user else [])


def test_a_restart_switches_no_link() -> None:
    runtime = runtime_on(FakeHost(processes=KNOWN + kafka("/opt/kafka/libs/*")))
    assert runtime.host(NODE, [Release(4, 2, 1)], restarts=True).link_users == ()


@pytest.mark.parametrize(
    ("class_path", "severity"),
    [
        ("/usr/bin/../share/java/kafka/kafka_2.13-4.2.1.jar", "blocker"),
        ("/usr/share/java/kafka/*", "blocker"),
        ("/usr/share/java/kafka-b/*", ""),
        ("/opt/kafka/libs/*", ""),
    ],
)
def test_a_kafka_of_another_cluster_runs_from_the_package(class_path: str, severity: str) -> None:
    assert NODE.service is not None
    package = PackageSpec(install=("/usr/bin/apt-get", "install", "kafka={version}"))
    node = replace(NODE, service=replace(NODE.service, package=package))
    host = FakeHost(package=["4.2.1"], processes=KNOWN + kafka(class_path))
    found = found_of(host, node)
    assert [one for one, _ in found] == ([severity] if severity else [])
    assert not found or "starts from the package in /usr/share/java/kafka too" in found[0][1]
