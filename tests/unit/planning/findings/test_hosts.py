"""Findings about hosts, from what the runtime reports."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from kafka_rollout.base.findings import Finding, Severity
from kafka_rollout.model.host_state import (
    Elsewhere,
    HostFacts,
    HostState,
    PackageProblem,
    PlaceState,
    StartFileKind,
    StartPath,
    StartPlace,
    StoppedUnit,
    UnitStop,
)
from kafka_rollout.model.plan import ConfigChange
from kafka_rollout.model.topology import ClusterSpec, PackageSpec, ServiceSpec
from kafka_rollout.planning.findings.hosts import host_problems
from kafka_rollout.releases.facts import Release
from tests.unit.builders import R391, R431, SEPARATE, catalogue, host_state

HEALTHY = host_state(free_bytes=10**9)


def test_a_host_that_is_ready_and_a_node_without_a_host_give_no_finding() -> None:
    assert (
        host_problems(SEPARATE, catalogue(), {4: HEALTHY, 5: replace(HEALTHY, stop_timeout_s=math.inf)}, [R431]) == ()
    )


@pytest.mark.parametrize(
    ("folder_exists", "can_return", "severity", "says"),
    [
        (True, True, "info", "A rollback leads the link back to /opt/kafka_2.13-3.9.1-acme3"),
        (False, True, "info", "A rollback leads the link back to /opt/kafka_2.13-3.9.1-acme3"),
        (True, False, "warning", "and a rollback would lead the link there"),
        (False, False, "blocker", "/opt/kafka_2.13-3.9.1, which does not exist, so a rollback would be refused"),
    ],
)
def test_a_link_that_a_rollback_would_lead_elsewhere_is_found(
    folder_exists: bool, can_return: bool, severity: str, says: str
) -> None:
    elsewhere = Elsewhere(
        release=Release(3, 9, 1),
        link="/opt/kafka_2.13-3.9.1-acme3",
        folder="/opt/kafka_2.13-3.9.1",
        folder_exists=folder_exists,
        can_return=can_return,
    )
    host = replace(HEALTHY, elsewhere=elsewhere)
    (found,) = host_problems(SEPARATE, catalogue(), {4: host}, [R431])
    assert (found.code, found.severity.value) == ("LINK-ELSEWHERE", severity)
    assert says in found.sentence
    restart = replace(host, elsewhere=replace(elsewhere, release=R431))
    assert host_problems(SEPARATE, catalogue(), {4: restart}, [R431]) == (), "a restart switches no link"


def test_a_package_that_an_upgrade_of_the_host_can_replace_is_a_warning() -> None:
    (found,) = host_problems(SEPARATE, catalogue(), {4: replace(HEALTHY, unheld=("kafka",))}, [R431])
    assert (found.code, found.severity.value) == ("PACKAGE-NOT-HELD", "warning")
    assert found.remedy.startswith("Run `apt-mark hold kafka` as root on host kafka-4.")


def test_a_package_that_dpkg_has_left_unfinished_blocks_with_its_name() -> None:
    host = replace(HEALTHY, unfinished=("linux-image-6.1 (half-configured)",))
    (found,) = host_problems(SEPARATE, catalogue(), {4: host}, [R431])
    assert (found.code, found.severity.value) == ("PACKAGE-UNFINISHED", "blocker")
    assert "1 package on host kafka-4 unfinished: linux-image-6.1 (half-configured)." in found.sentence


def test_a_run_that_starts_no_node_is_not_blocked_by_what_an_installation_would_replace() -> None:
    install = ("/usr/bin/dnf", "install", "-y", "kafka-{version}")
    node = SEPARATE.node(4)
    service = ServiceSpec(host="kafka-4", package=PackageSpec(install=install, check=()))
    cluster = replace(
        SEPARATE, nodes=tuple(replace(node, service=service) if one == node else one for one in SEPARATE.nodes)
    )
    place = StartPlace(path="/usr/lib/systemd/system/kafka.service", state=PlaceState.FILE)
    unit = StartPath(kind=StartFileKind.UNIT, path=place.path, now=place, after={}, is_edited=True)
    hosts = {4: replace(HEALTHY, start_paths=(unit,))}
    assert [one.code for one in host_problems(cluster, catalogue(), hosts, [])] == ["START-PATH-SWITCHED"]
    assert host_problems(cluster, catalogue(), hosts, [], restarts=True) == (), "it raises levels alone"


@pytest.mark.parametrize(
    ("option", "adds"),
    [
        (("--yes",), True),
        (("--allow-change-held-packages",), False),
        (("-o", "APT::Get::allow-change-held-packages=true"), False),
    ],
)
def test_a_held_package_needs_an_installation_that_can_replace_it(option: tuple[str, ...], adds: bool) -> None:
    install = ("/usr/bin/apt-get", "install", *option, "kafka={version}")
    node = SEPARATE.node(4)
    service = ServiceSpec(host="kafka-4", package=PackageSpec(install=install, check=()))
    nodes = tuple(replace(node, service=service) if one == node else one for one in SEPARATE.nodes)
    hosts = {4: replace(HEALTHY, unheld=("kafka",))}
    found = [
        one
        for one in host_problems(replace(SEPARATE, nodes=nodes), catalogue(), hosts, [R431])
        if one.code == "PACKAGE-NOT-HELD"
    ]
    assert [one.remedy.startswith("Add --allow-change-held-packages to `install`") for one in found] == [adds]


def test_an_archive_without_a_checksum_in_the_inventory_is_a_warning() -> None:
    brought = frozenset({R431})
    (finding,) = host_problems(SEPARATE, catalogue(), {4: replace(HEALTHY, brought=brought, unpinned=brought)}, [R431])
    assert (finding.code, finding.severity.value) == ("ARCHIVE-NOT-PINNED", "warning")


@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (
            {"releases": frozenset(), "lacks": {R431: "/opt/k/libs lacks 3 of 46 jars"}},
            "RELEASE-NOT-ON-HOST",
            "is not installed on host kafka-4: /opt/k/libs lacks 3 of 46 jars.",
        ),
        (
            {"unavailable": {R431: PackageProblem(sentence="It is not there.")}, "releases": frozenset()},
            "PACKAGE-UNAVAILABLE",
            "not there",
        ),
        ({"unavailable": {R431: PackageProblem(sentence="No.", is_unknown=True)}}, "PACKAGE-UNKNOWN", "No."),
        ({"symlink_can_switch": False}, "SYMLINK-IS-NO-LINK", "/opt/kafka on host kafka-4 is not a symbolic link"),
        ({"stop_timeout_s": 5.0}, "STOP-TIMEOUT-SHORT", "5 s after a stop was requested (TimeoutStopSec)"),
        (
            {"stop_timeout_s": math.inf, "kill_mode": "none"},
            "STOP-LEAVES-PROCESS",
            "systemd stops no process of kafka.service on host kafka-4 (KillMode=none)",
        ),
        (
            {"needs_reload": "NeedDaemonReload=yes"},
            "UNIT-NOT-RELOADED",
            "The files of kafka.service on host kafka-4 have changed since systemd has read them: NeedDaemon",
        ),
        ({"stop_timeout_s": 5.0, "kill_mode": "none"}, "STOP-LEAVES-PROCESS", "(KillMode=none)"),
        ({"denied": ("(root) NOPASSWD: /usr/bin/x",)}, "HOST-RIGHT-MISSING", "refuses 1 of the commands"),
        ({"free_bytes": 4096}, "HOST-DISK-FULL", "has 4096 bytes left"),
        ({"unknown": ("TimeoutStopSec of the unit",)}, "HOST-VALUE-UNKNOWN", "does not report TimeoutStopSec of"),
        ({"facts": HostFacts(clock_skew_s=61.0)}, "CLOCK-SKEW", "is 61 s ahead of the clock of this machine"),
        ({"facts": HostFacts(clock_skew_s=-61.0)}, "CLOCK-SKEW", "is 61 s behind the clock of this machine"),
    ],
)
def test_each_obstacle_blocks_before_anything_is_stopped(change: dict[str, object], code: str, says: str) -> None:
    (found,) = host_problems(SEPARATE, catalogue(), {4: replace(HEALTHY, **change)}, [R431])
    assert (found.code, found.severity.value) == (code, "blocker")
    assert found.subject.startswith("node 4")
    assert says in found.sentence


SCRIPT = "/opt/kafka/bin/kafka-server-stop.sh"
# The words by which kafka-server-stop.sh of 3.7.0 and later is known.
OWN_SCRIPT = "grep -- '--process-role='; grep -- '--node-id='; ps ax | grep ' kafka\\.Kafka '"


@pytest.mark.parametrize(
    ("change", "has"),
    [
        ({"kill_signal": 9}, "KillSignal=9"),
        ({"kill_signal": 3}, "KillSignal=3"),
        *(
            ({"commands": (command,)}, f"ExecStop={command}")
            for command in (
                "/bin/kill -9 $MAINPID",
                "/usr/bin/pkill --signal KILL -P 1",
                "/bin/sh -c kill -s SIGKILL 5",
            )
        ),
        ({"commands": (f"/usr/bin/env SIGNAL=KILL {SCRIPT}",)}, f"ExecStop=/usr/bin/env SIGNAL=KILL {SCRIPT}"),
        *(
            ({"commands": (SCRIPT,), "signal": signal}, f"SIGNAL={signal} in its environment")
            for signal in ("KILL", "9", "SIGQUIT", "3")
        ),
        *(({"commands": (SCRIPT,), "signal": signal}, "") for signal in ("", "TERM", "SIGINT", "15", "hup")),
        ({"signal": "KILL"}, ""),  # nothing reads it
        ({"commands": (f"/usr/bin/env SIGNAL=TERM {SCRIPT}",)}, ""),
        ({"kill_signal": 2}, ""),
        ({"commands": ("/bin/kill -15 $MAINPID", "/opt/kill-9/stop -s TERM", "/bin/kill -HUP 9")}, ""),
    ],
)
def test_a_stop_that_is_no_controlled_shutdown_blocks(change: dict[str, object], has: str) -> None:
    of_unit = {key: value for key, value in change.items() if key == "kill_signal"}
    stop = UnitStop(**{key: value for key, value in change.items() if key not in of_unit})
    found = host_problems(SEPARATE, catalogue(), {4: replace(HEALTHY, stop=stop, **of_unit)}, [R431])
    codes = [(one.code, one.severity.value) for one in found]
    assert codes == ([("STOP-NOT-CONTROLLED", "blocker")] if has else [])
    sentences = [one.sentence for one in found if codes and one.code == codes[0][0]]
    assert all(f"has {has}" in one and ": a stop is no controlled shutdown" in one for one in sentences)


@pytest.mark.parametrize(
    ("lines", "severity", "named"),
    [
        (["kill -9 $(cat $PIDFILE)"], "blocker", "`kill -9 $(cat $PIDFILE)`"),
        (["test -f x && kill -KILL $PID"], "blocker", "`kill -KILL $PID`"),
        (["start-stop-daemon --stop --signal KILL --pidfile /run/kafka.pid"], "blocker", "--signal KILL"),
        (["kill $PID", "sleep 20", "kill -0 $PID && kill -9 $PID"], "warning", "`kill -9 $PID`"),
        (["kill -TERM $PID; sleep 60; kill -9 $PID"], "warning", "`kill -9 $PID`"),
        (["/opt/kafka/bin/kafka-server-stop.sh", "kill -9 $PID"], "warning", "`kill -9 $PID`"),
        (["start-stop-daemon --stop --retry=TERM/30/KILL/5 --pidfile /run/kafka.pid"], "warning", "KILL/5"),
        (["start-stop-daemon --start --exec /x", "start-stop-daemon --stop --retry 10 -p /x"], "warning", "--retry 10"),
        (["killproc -p /run/kafka.pid kafka"], "warning", "killproc -p"),
        (["killproc -p /run/kafka.pid kafka -9"], "blocker", "-9"),
        (["killproc -p /run/kafka.pid kafka -TERM"], "", ""),
        (["start-stop-daemon --stop --retry=TERM/300 --pidfile /run/kafka.pid", "kill -0 9"], "", ""),
        (["kill -s $SIGNAL $PIDS", "pkill -f kafka.Kafka"], "", ""),
    ],
)
def test_a_script_that_kills_kafka_is_named(lines: list[str], severity: str, named: str) -> None:
    host = replace(HEALTHY, stop=UnitStop(lines=tuple(("/etc/init.d/kafka", line) for line in lines)))
    found = host_problems(SEPARATE, catalogue(), {4: host}, [R431])
    assert [(one.code, one.severity.value) for one in found] == (
        [("STOP-NOT-CONTROLLED", severity)] if severity else []
    )
    assert all("/etc/init.d/kafka: `" in one.sentence and named in one.sentence for one in found)


def test_a_process_that_outlives_the_patience_of_systemd_is_a_warning_and_its_short_timeout_a_blocker() -> None:
    """The run waits for the process; without a limit, systemd does."""
    host = replace(HEALTHY, sends_sigkill=False)
    (found,) = host_problems(SEPARATE, catalogue(), {4: host}, [R431])
    assert (found.code, found.severity.value) == ("STOP-LEAVES-PROCESS", "warning")
    assert "still shuts down 300 s after" in found.sentence
    assert "leaves its process alive (SendSIGKILL=no)" in found.sentence
    _, short = host_problems(SEPARATE, catalogue(), {4: replace(host, stop_timeout_s=5.0)}, [R431])
    assert (short.code, short.sentence[:39]) == ("STOP-TIMEOUT-SHORT", "systemd gives up kafka.service on host ")
    assert host_problems(SEPARATE, catalogue(), {4: replace(host, stop_timeout_s=math.inf)}, [R431]) == ()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["/etc/kafka/server.properties"], []),
        (["/etc/kafka/../kafka/server.properties"], []),
        (["kafka/server.properties"], []),
        (["../config/kafka/server.properties"], ["started with ../config/kafka/server.properties"]),
        (
            ["/opt/kafka/config/kraft/server.properties"],
            ["started with /opt/kafka/config/kraft/server.properties, and the inventory has /etc/kafka/server.propert"],
        ),
        (["other.properties"], ["started with other.properties, and the inventory has /etc/kafka/server.properties"]),
        (["/etc/kafka/server.properties", "--override", "log.dirs=/data", "--override=ssl.key.password=never"], []),
        ([], []),
    ],
)
def test_a_process_that_was_started_with_other_settings_is_a_warning(arguments: list[str], says: list[str]) -> None:
    facts = HostFacts(arguments=("java", "-cp", "/opt/kafka/libs/*", "kafka.Kafka", *arguments))
    found = host_problems(on_one_host(), catalogue(), {4: replace(HEALTHY, facts=facts)}, [R431])
    assert [(one.code, one.severity.value) for one in found] == [("CONFIGURATION-NOT-READ", "warning") for _ in says]
    assert all(text in one.sentence for text, one in zip(says, found, strict=True))
    assert "never" not in str(found)


def test_a_line_that_the_run_changes_and_an_override_hides_is_a_blocker() -> None:
    """The configuration of a node has its overrides, but a run writes into the file."""
    options = ("--override", "num.io.threads=9", "--override", "a=never")
    arguments = ("kafka.Kafka", "/etc/kafka/server.properties", *options)
    removed = replace(HEALTHY, facts=HostFacts(arguments=arguments))
    hosts = {4: replace(HEALTHY, overrides=frozenset({"num.io.threads", "a"}))}
    spec = on_one_host()
    change = ConfigChange(node_id=4, release=R431, key="num.io.threads", value="3", reason="a test")
    elsewhere = replace(change, node_id=1)
    assert host_problems(spec, catalogue(), hosts, [R431], changes=[elsewhere]) == ()
    assert host_problems(spec, catalogue(), {4: removed}, [R431], changes=[change]) == (), "the next start has none"
    (found,) = host_problems(spec, catalogue(), hosts, [R431], changes=[change])
    assert (found.code, found.severity.value) == ("CONFIGURATION-NOT-READ", "blocker")
    assert "num.io.threads" in found.sentence
    assert "never" not in str(found)
    lines = replace(spec, release_overrides={str(R431): {"a": "1"}, "9.9.9": {"num.io.threads": "1"}})
    (found,) = host_problems(lines, catalogue(), hosts, [R431])
    assert "--override of a," in found.sentence


def on_one_host(unit: str = "kafka-1.service", *, host: str = "kafka-4") -> ClusterSpec:
    """Broker 4 and controller 1 are on host kafka-4. `unit` and `host`: of node 1."""
    service = ServiceSpec(
        host="kafka-4",
        unit="kafka.service",
        user="kafka",
        installation="/opt/kafka_2.13-{release}",
        symlink="/opt/kafka",
        configuration_file="/etc/kafka/server.properties",
    )
    services = {4: service, 1: replace(service, unit=unit, host=host)}
    return replace(SEPARATE, nodes=tuple(replace(node, service=services.get(node.node_id)) for node in SEPARATE.nodes))


@pytest.mark.parametrize(
    ("command", "reaches"),
    [
        (SCRIPT, True),
        (f"/bin/sh -c '{SCRIPT}'", True),
        (f"{SCRIPT} --node-id=4", False),
        (f"{SCRIPT} --node-id=1", True),
        (f"{SCRIPT} --node-id=${{NODE_ID}}", None),
        (f"{SCRIPT} --process-role=broker", False),
        (f"{SCRIPT} --process-role=controller", True),
        ("/usr/bin/pkill -f kafka.Kafka", True),
        ("/usr/bin/killall java", True),
        ("/bin/sh -c 'ps ax | grep kafka.Kafka | xargs kill'", None),
        ("/bin/kill -TERM $MAINPID", False),
        ("/opt/drain --topics kafka-1", None),
    ],
)
def test_a_unit_whose_stop_is_not_known_to_spare_another_node_of_the_host_is_a_blocker(
    command: str, *, reaches: bool | None
) -> None:
    """None: the tool cannot tell."""
    host = replace(HEALTHY, stop=UnitStop(commands=(command,), scripts={SCRIPT: OWN_SCRIPT}))
    found = host_problems(on_one_host(), catalogue(), {4: host}, [R431])
    assert [finding.code for finding in found] == ([] if reaches is False else ["STOP-REACHES-OTHER-NODES"])
    if found:
        assert found[0].severity is Severity.BLOCKER
        says = ", which can also stop node 1" if reaches else ". The tool cannot tell whether this also stops node 1"
        assert f"has ExecStop={command}{says}" in found[0].sentence
        assert "`systemctl edit kafka.service`" in found[0].remedy
        assert ("`stop_spares_others: true`" in found[0].remedy) is (reaches is None)


def test_what_the_inventory_says_about_a_stop_is_a_warning_for_the_approver() -> None:
    spec = on_one_host()
    nodes = [
        replace(node, service=node.service and replace(node.service, stop_spares_others=True)) for node in spec.nodes
    ]
    host = replace(HEALTHY, stop=UnitStop(commands=("/opt/drain", SCRIPT)))
    found = host_problems(replace(spec, nodes=tuple(nodes)), catalogue(), {4: host}, [R431])
    assert [(one.code, one.severity, one.covers) for one in found] == [
        ("STOP-REACHES-OTHER-NODES", Severity.WARNING, ("/opt/drain",)),
        ("STOP-REACHES-OTHER-NODES", Severity.BLOCKER, (SCRIPT,)),
    ]
    assert "The inventory says that it stops kafka.service alone." in found[0].sentence


def test_a_stop_script_before_3_7_ignores_its_filters_and_one_alone_on_its_host_reaches_no_other() -> None:
    host = replace(HEALTHY, stop=UnitStop(commands=(f"{SCRIPT} --node-id=4",), scripts={SCRIPT: OWN_SCRIPT[-40:]}))
    (found,) = host_problems(on_one_host(), catalogue(), {4: host}, [R431])
    assert found.code == "STOP-REACHES-OTHER-NODES"
    assert host_problems(SEPARATE, catalogue(), {4: host}, [R431]) == ()


def stopped(name: str, *settings: str, of: str = "kafka.service") -> StoppedUnit:
    return StoppedUnit(names=tuple(name.split()), of=of, settings=settings)


def with_stopped(*units: StoppedUnit) -> HostState:
    return replace(HEALTHY, stopped_units=units)


def test_another_node_that_systemd_stops_with_the_unit_is_a_blocker_and_another_unit_a_warning() -> None:
    units = (
        stopped("controller.service kafka-controller.service", "Requires", "BindsTo"),
        stopped("c.service", "PartOf"),
    )
    found = host_problems(on_one_host("kafka-controller.service"), catalogue(), {4: with_stopped(*units)}, [R431])
    assert [(one.code, one.severity.value, one.subject) for one in found] == [
        ("STOP-REACHES-OTHER-NODES", "blocker", "node 4, controller.service"),
        ("STOP-REACHES-OTHER-UNITS", "warning", "node 4, c.service"),
    ]
    assert found[0].sentence == (
        "A stop of kafka.service on host kafka-4 also stops controller.service, which is node 1, outside every gate: "
        "controller.service has Requires=kafka.service and BindsTo=kafka.service. A start of kafka.service need not "
        "start it again."
    )
    assert found[0].remedy == (
        "Run `systemctl edit --full controller.service` on the host, and remove kafka.service from Requires= and "
        "BindsTo= in the file and in its drop-ins. Wants= and After= can name it: they stop nothing. If neither names "
        "it, remove the link kafka.service in the folder controller.service.requires, and run `systemctl "
        "daemon-reload`."
    )
    assert found[1].remedy.startswith("Start c.service again after the step of the node, or cut the dependency. Run")
    assert ".requires" not in found[1].remedy


def test_a_target_between_two_nodes_is_named_with_what_passes_the_stop() -> None:
    units = stopped("kafka.target", "Requires"), stopped("b.service", "StopPropagatedFrom", of="kafka.target")
    target, node = host_problems(on_one_host("b.service"), catalogue(), {4: with_stopped(*units)}, [R431])
    assert (target.code, node.code) == ("STOP-REACHES-OTHER-UNITS", "STOP-REACHES-OTHER-NODES")
    assert "kafka.target has Requires=kafka.service and b.service has StopPropagatedFrom=kafka.target" in node.sentence
    assert "remove kafka.target from StopPropagatedFrom= (or b.service from PropagatesStopTo= of" in node.remedy


def test_a_node_of_another_host_with_the_same_name_of_its_unit_is_not_reached() -> None:
    cluster, host = on_one_host("b.service", host="kafka-1"), with_stopped(stopped("b.service", "PartOf"))
    (found,) = host_problems(cluster, catalogue(), {4: host}, [R431])
    assert found.code == "STOP-REACHES-OTHER-UNITS"


@pytest.mark.parametrize(("folder", "said"), [("kafka_2.12-4.3.1", True), ("kafka_2.13-4.3.1", False)])
def test_a_folder_named_by_an_older_scala_can_have_the_archive(folder: str, *, said: bool) -> None:
    host = replace(HEALTHY, releases=frozenset(), folders={R431: f"/opt/{folder}"})
    (found,) = host_problems(SEPARATE, catalogue(), {4: host}, [R431])
    assert ("Scala 2.13 only" in found.remedy) is said


def test_a_right_that_an_old_sudo_does_not_read_has_its_cause() -> None:
    denied = ("(kafka) NOPASSWD: /usr/bin/ls ^\\-l /proc/[0-9]+/fd$",)
    (old,) = host_problems(SEPARATE, catalogue(), {4: replace(HEALTHY, denied=denied, old_sudo="sudo 1.9.5p2")}, [R431])
    (new,) = host_problems(SEPARATE, catalogue(), {4: replace(HEALTHY, denied=denied)}, [R431])
    assert (old.code, "sudo 1.9.5p2 reads no regular expressions" in old.sentence) == ("HOST-RIGHT-MISSING", True)
    assert "Remove the file from /etc/sudoers.d and install sudo 1.9.10 or later" in old.remedy
    assert "an older one rejects these lines with a syntax error" in old.remedy
    (rust,) = host_problems(
        SEPARATE, catalogue(), {4: replace(HEALTHY, denied=denied, old_sudo="sudo-rs 0.2.8")}, [R431]
    )
    assert "sudo-rs 0.2.8 reads no regular expressions" in rust.sentence
    assert "update-alternatives --set sudo /usr/bin/sudo.ws" in rust.remedy
    assert "Add these lines to the sudoers file" in new.remedy
    assert "regular" not in new.sentence


def test_a_log_that_no_gate_can_read_is_named_before_the_run() -> None:
    (found,) = host_problems(SEPARATE, catalogue(), {4: replace(HEALTHY, unread_log=300)}, [R431])
    assert (found.code, found.severity.value) == ("LOG-LAYOUT-UNKNOWN", "warning")
    assert "None of the last 300 lines of the journal of kafka.service on host kafka-4" in found.sentence
    assert "`[%d] %p %m (%c)%n`" in found.remedy


def test_a_release_that_is_hidden_from_the_ssh_user_has_a_way_out() -> None:
    hidden = replace(
        HEALTHY,
        releases=frozenset(),
        lacks={R431: "/opt/kafka_2.13-4.3.1/libs cannot be read by the SSH user"},
        login="rollout",
    )
    (found,) = host_problems(SEPARATE, catalogue(), {4: hidden}, [R431])
    assert "setfacl -R -m u:rollout:rX /opt/kafka_2.13-4.3.1" in found.remedy
    assert "must not exist" not in found.remedy


def test_a_release_that_is_not_there_needs_space() -> None:
    facts = HostFacts(release_bytes=10**8)
    assert host_problems(SEPARATE, catalogue(), {4: replace(HEALTHY, facts=facts)}, [R431]) == ()
    missing = replace(HEALTHY, releases=frozenset(), facts=facts)
    found = host_problems(SEPARATE, catalogue(), {4: missing}, [R431])
    assert [finding.code for finding in found] == ["RELEASE-NOT-ON-HOST", "HOST-DISK-FULL"]
    assert "has 100 MB left" in found[1].sentence


def test_a_run_needs_space_for_its_records() -> None:
    (found,) = host_problems(SEPARATE, catalogue(), {4: replace(HEALTHY, home_bytes=4096)}, [R431])
    assert (found.code, found.subject) == ("HOST-DISK-FULL", "node 4, home")
    assert "home folder of the SSH user on host kafka-4 has 4096 bytes left" in found.sentence
    full = replace(HEALTHY, home_full="Disk quota exceeded", login="rollout")
    (found,) = host_problems(SEPARATE, catalogue(), {4: full}, [R431])
    assert (found.code, found.subject) == ("HOST-DISK-FULL", "node 4, home")
    assert "takes no file in the home folder of the SSH user rollout: Disk quota exceeded." in found.sentence
    assert found.remedy == "Free space, files (`df --inodes`) or the quota of the home folder of the SSH user rollout."


def test_a_file_system_without_files_is_full() -> None:
    (found,) = host_problems(SEPARATE, catalogue(), {4: replace(HEALTHY, few_files={"/etc/kafka": 3})}, [R431])
    assert (found.code, found.subject) == ("HOST-DISK-FULL", "node 4, files of /etc/kafka")
    assert "The file system of /etc/kafka on host kafka-4 takes only 3 more files" in found.sentence


def test_a_package_manager_needs_space_for_its_state() -> None:
    (found,) = host_problems(SEPARATE, catalogue(), {4: replace(HEALTHY, package_bytes=10**7)}, [R431])
    assert (found.code, found.subject) == ("HOST-DISK-FULL", "node 4, packages")
    assert "has 10.0 MB left for its state and its downloads (/var/lib, /var/cache)" in found.sentence


JAVA, AGENT, LIBS = "/usr/lib/jvm/java-17/lib/jrt-fs.jar", "/opt/agents/jmx.jar", "/opt/kafka_2.13-3.9.1/libs"
OWN = (
    JAVA,
    AGENT,
    f"{LIBS}/kafka_2.13-3.9.1.jar",
    f"{LIBS}/kafka-clients-3.9.1.jar",
    f"{LIBS}/zookeeper-jute-3.8.4.jar",
)


NEXT = frozenset({"kafka_2.13-4.3.1.jar", "both-1.0.jar"})


def running(
    *jars: str, arguments: tuple[str, ...] = (), release: Release = R431, there: frozenset[str] = NEXT
) -> tuple[Finding, ...]:
    facts = HostFacts(
        loaded_jars=(*OWN, *jars),
        arguments=("java", f"-javaagent:{AGENT}=9404:/etc/kafka/jmx.yml", *arguments, "kafka.Kafka"),
        release_jars={release: there},
    )
    host = replace(HEALTHY, facts=facts, releases=frozenset({release}))
    return host_problems(SEPARATE, catalogue(), {4: host}, [release])


def test_jars_of_an_archive_of_java_and_of_agents_are_no_plugins() -> None:
    assert running() == ()


def test_a_plugin_is_named_and_whether_the_next_release_has_it() -> None:
    plugins = (f"{LIBS}/opa-authorizer-1.5.jar", f"{LIBS}/both-1.0.jar", "/opt/tiered/kafka-tiered-storage-3.9.0.jar")
    (found,) = running(*plugins)
    assert (found.code, found.severity.value) == ("FOREIGN-JARS", "warning")
    assert f": {', '.join(sorted((*plugins,)))}." in found.sentence
    assert "The folder of 4.3.1 does not have opa-authorizer-1.5.jar." in found.sentence


def test_each_jar_of_a_plugin_is_named_also_one_with_a_name_like_those_of_kafka() -> None:
    plugin = ("my-authorizer-1.2.jar", "jedis-4.3.1.jar", "commons-pool2-2.11.1.jar")
    similar = ("netty-handler-proxy-4.1.105.Final.jar", "log4j-layout-template-json-2.24.3.jar", "jackson-jr-2.jar")
    of_kafka = ("commons-cli-1.4.jar", "netty-handler-4.1.111.Final.jar", "log4j-core-2.jar", "jetty-new-9.jar")
    paths = [f"{LIBS}/{name}" for name in (*plugin, *similar, *of_kafka)]
    jars = frozenset({"kafka_2.13-4.3.1.jar", "log4j-core-2.24.3.jar", "jetty-new-12.jar"})
    (found,) = running(*paths, there=jars)
    assert f"The folder of 4.3.1 does not have {', '.join(sorted((*plugin, *similar)))}." in found.sentence
    assert (
        "it does not have either: commons-cli-1.4.jar, netty-handler-4.1.111.Final.jar, zookeeper-jute-3.8.4.jar."
        in found.sentence
    )
    assert running(*paths[6:], there=jars) == ()


@pytest.mark.parametrize(
    ("argument", "release", "unreadable"),
    [
        ("-Dlog4j.configuration=file:/etc/kafka/log4j.properties", R431, True),
        ("-Dlog4j.configuration=file:/opt/kafka/bin/../config/log4j.properties", R431, False),
        ("-Dlog4j.configuration=file:/opt/kafka_2.13-3.9.1/bin/../config/log4j.properties", R431, False),
        ("-Dlog4j.configuration=file:/opt/kafka_2.13-3.9.1/config/log4j.properties", R431, True),
        ("-Dlog4j.configuration=file:/opt/kafka/config/log4j.properties", R431, True),
        ("-Dlog4j.configuration=file:///opt/kafka/config/my-log4j.properties", R431, True),
        ("-Dlog4j.configuration=log4j-json.properties", R431, True),
        ("-Dlog4j.configuration=file:/etc/kafka/log4j.properties", R391, False),
        ("-Dlog4j2.configurationFile=/etc/kafka/log4j2.yaml", R391, True),
        ("-Dlog4j.configurationFile=/etc/kafka/log4j2.yaml", R391, True),
        ("-Dlog4j.configurationFile=/etc/kafka/log4j2.yaml", R431, False),
        ("-Dlog4j2.configurationFile=/etc/kafka/log4j2.yaml", R431, False),
    ],
)
def test_a_file_for_the_other_logging_library_is_named(argument: str, release: Release, unreadable: bool) -> None:
    found = running(arguments=(argument,), release=release)
    assert [finding.code for finding in found] == (["LOG-CONFIG-UNREADABLE"] if unreadable else [])
    assert (
        not unreadable
        or f"from {argument.partition('=')[2].removeprefix('file:').replace('///', '/')}." in found[0].sentence
    )


def test_the_file_of_the_start_script_counts_if_the_environment_of_the_unit_names_it() -> None:
    file = "/opt/kafka/bin/../config/log4j.properties"
    facts = HostFacts(arguments=("java", f"-Dlog4j.configuration=file:{file}", "kafka.Kafka"))
    path = start_path(StartFileKind.LOGGING, file, "/opt/kafka_2.13-3.9.1/config/log4j.properties", is_of_unit=True)
    host = replace(HEALTHY, facts=facts, start_paths=(path,))
    assert [one.code for one in host_problems(SEPARATE, catalogue(), {4: host}, [R431])] == ["LOG-CONFIG-UNREADABLE"]


def start_path(kind: StartFileKind, path: str, now: str, *, is_of_unit: bool = False) -> StartPath:
    """A path that stays on 4.3.1."""
    place = StartPlace(path=now, state=PlaceState.FILE)
    return StartPath(kind=kind, path=path, now=place, after={R431: place}, is_of_unit=is_of_unit)


FILE, OTHER = "/etc/kafka/server.properties", "/srv/kafka/server.properties"


@pytest.mark.parametrize(
    ("process", "unit", "severity"),
    [
        (("/srv/link", FILE), None, None),  # a link to the file of the inventory
        ((OTHER, OTHER), None, "blocker"),
        ((OTHER, OTHER), (FILE, FILE), None),  # the next start reads it
        ((FILE, FILE), (OTHER, OTHER), "blocker"),
    ],
)
def test_the_file_that_the_next_start_reads_is_compared_without_links(
    process: tuple[str, str], unit: tuple[str, str] | None, severity: str | None
) -> None:
    paths = [start_path(StartFileKind.CONFIGURATION, *one) for one in {(FILE, FILE), process} if one != unit]
    if unit:
        paths.append(start_path(StartFileKind.CONFIGURATION, *unit, is_of_unit=True))
    facts = HostFacts(arguments=("java", "kafka.Kafka", process[0]))
    host = replace(HEALTHY, facts=facts, start_paths=tuple(paths))
    found = host_problems(on_one_host(), catalogue(), {4: host}, [R431])
    assert [(one.code, one.severity.value) for one in found] == (
        [("CONFIGURATION-NOT-READ", severity)] if severity else []
    )


def test_a_unit_that_names_another_file_is_found_without_a_process() -> None:
    """As before the start of a rollback, and if the command line of the process is hidden."""
    own, other = (start_path(StartFileKind.CONFIGURATION, one, one, is_of_unit=one == OTHER) for one in (FILE, OTHER))
    for arguments in ((), ("/bin/sh", "/usr/local/bin/start-kafka")):
        host = replace(HEALTHY, facts=HostFacts(arguments=arguments), start_paths=(own, other))
        (found,) = host_problems(on_one_host(), catalogue(), {4: host}, [R431])
        assert (found.code, found.severity.value) == ("CONFIGURATION-NOT-READ", "blocker")
        alone = replace(host, start_paths=(own,))
        assert host_problems(on_one_host(), catalogue(), {4: alone}, [R431]) == ()
