"""Which Kafka of a host a stop reaches, by the text that it executes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.model.host_state import KafkaProcess, UnitStop
from kafka_rollout.model.topology import NodeSpec, Role, ServiceSpec
from kafka_rollout.model.unit_stops import StopReach, find_reached

SCRIPT = "/opt/kafka/bin/kafka-server-stop.sh"
SITE = "/usr/local/bin/stop-kafka"
NODE = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=ServiceSpec(host="h"))
OTHER = NodeSpec(
    node_id=7,
    name="kafka-7",
    roles=frozenset({Role.BROKER}),
    service=ServiceSpec(host="h", unit="kafka-7.service", configuration_file="/etc/kafka-7/server.properties"),
)
FOREIGN = KafkaProcess(
    pid=77,
    unit="kafka-b.service",
    command=("/usr/bin/java", "-Xmx1g", "kafka.Kafka", "/etc/kafka-b/server.properties"),
    configuration="/etc/kafka-b/server.properties",
    user="kafka",
    user_id=997,
    node_id="1",
    roles="broker",
)
STOP = UnitStop(user_id=997, is_privileged=False, processes=(FOREIGN,))


def reached(stop: UnitStop, *others: NodeSpec) -> list[StopReach]:
    return list(find_reached(stop, NODE, others, unit="kafka.service", host="h"))


@pytest.mark.parametrize(
    ("command", "is_reached"),
    [
        (SCRIPT, True),
        (f"{SCRIPT} --node-id=1", True),  # another cluster has this id too
        (f"{SCRIPT} --node-id=2", False),
        (f"{SCRIPT} --process-role=broker", True),
        (f"{SCRIPT} --process-role=broker,controller", False),
        ("/usr/bin/pkill -TERM -f kafka.Kafka", True),
        ("/usr/bin/pkill -HUP -f kafka.Kafka", True),
        ("/usr/bin/pkill -f /etc/kafka/server.properties", False),
        ("/usr/bin/pkill -F /run/kafka.pid", False),
        ("/usr/bin/pkill -u kafka java", True),
        ("/usr/bin/pkill node_exporter", False),
        ("/usr/bin/killall java", True),
        ("/bin/sh -c ps ax | grep kafka.Kafka | grep -v grep | awk '{print $1}' | xargs kill", True),
        ("/bin/sh -c 'ps ax | grep /etc/kafka/server.properties | xargs kill'", False),
        ("/bin/sh -c 'ps ax | awk /kafka-b/ | xargs kill'", True),
        ("/bin/sh -c 'kill -TERM $(pgrep -f kafka.Kafka)'", True),
        ("/bin/sh -c 'while pkill -0 -f kafka.Kafka; do sleep 1; done'", False),
        ("/sbin/start-stop-daemon --stop --exec /usr/bin/java", True),
        ("/sbin/start-stop-daemon --stop --exec /usr/bin/java --pidfile /run/kafka.pid", False),
        ("/bin/kill -TERM $MAINPID", False),
        (f"{SCRIPT} --node-id 2", True),  # it knows its options only with `=`
        (f"{SCRIPT} --process-role=$ROLE", True),
        ("/usr/bin/pkill -TERM -u kafka", True),
        ("/usr/bin/pkill --euid kafka", True),
        ("/usr/bin/pkill -U 997", True),
        ("/usr/bin/pkill java -u kafka", True),
        ("/usr/bin/pkill -g 0", True),
        ("/usr/bin/pkill -s 0", True),
        ("/usr/bin/pkill -P 1", True),
        ("/usr/bin/pkill --inverse node_exporter", True),
        ("/usr/bin/pkill --new-option 5 node_exporter", True),
        ("/usr/bin/pkill -f kafka.Kafka --signal TERM", True),
        ("/usr/bin/pkill -u kafka -f /etc/kafka/server.properties --signal TERM", False),
        ("/usr/bin/pkill -P $MAINPID", False),
        ("/usr/bin/killall -s TERM -u kafka", True),
        ("/usr/bin/killall -u kafka node_exporter", False),
        ("/sbin/start-stop-daemon --stop --user kafka", True),
        ("/sbin/start-stop-daemon -K -u kafka --signal TERM", True),
        ("/sbin/start-stop-daemon --stop --user kafka --name node_exporter", False),
        ("/sbin/start-stop-daemon --start --user kafka --exec /usr/bin/java", False),
        ("/usr/bin/skill -TERM -u kafka", True),
        ("/usr/bin/fuser -k -TERM 9092/tcp", True),
        ("/usr/bin/fuser /var/lib/kafka", False),
        ("/bin/sh -c 'pgrep -u kafka | xargs -r kill -TERM'", True),
        ("/bin/sh -c 'kill $(lsof -t /opt/kafka/libs)'", True),
        ("/bin/sh -c 'lsof -ti :9092 | xargs kill'", True),
        ('/bin/sh -c "kill `pidof java`"', True),
        ("/bin/sh -c 'jcmd | grep kafka.Kafka | cut -d\" \" -f1 | xargs kill'", True),
        ("/bin/sh -c 'kill $(ps -u kafka -o pid=)'", True),
        ("/bin/sh -c 'kill $(ps -o pid= --ppid 1)'", True),
        ("/bin/sh -c 'kill $(grep -la kafka.Kafka /proc/[0-9]*/cmdline | cut -d/ -f3)'", True),
        ("/bin/sh -c 'kill $(cat /run/kafka*.pid)'", True),
        ("/bin/sh -c 'kill $(cat /run/kafka.pid) 2>/dev/null'", False),
        ("/bin/sh -c 'xargs kill -TERM < /run/kafka.pid'", True),  # not read: unknown
        ("/bin/kill -- -1", True),
        ("/bin/kill -1 -1", True),
        ("/bin/kill -1", True),
        ("/bin/kill -1 $MAINPID", False),
        ("/bin/kill -s TERM -- -$MAINPID", False),
        ("/bin/kill -TERM 77", True),
        ("/bin/kill -TERM 78", False),
        ("/bin/kill -TERM $OTHER", True),
        ("/bin/kill -l", False),
        ("/usr/bin/systemctl stop kafka-b.service", True),
        ("/usr/bin/systemctl kill --signal TERM kafka-b", True),
        ("/usr/bin/systemctl isolate rescue.target", True),
        ("/usr/bin/systemctl kill -s TERM kafka.service", False),
        ("/usr/bin/systemctl is-active kafka-b.service", False),
        ("/bin/sh -c 'kill $(systemctl show -p MainPID --value kafka.service)'", False),
        ("/bin/sh -c 'kill $(systemctl show -p MainPID --value kafka-b.service)'", True),
        ("/usr/bin/supervisorctl stop kafka:*", True),
        ("/usr/sbin/service kafka-b stop", True),
        ("/usr/bin/docker kill kafka-b", True),
        ("/usr/bin/logger 'kill java of kafka'", False),
    ],
)
@pytest.mark.parametrize("is_script", [False, True])
def test_a_command_reaches_a_kafka_of_another_cluster(command: str, *, is_reached: bool, is_script: bool) -> None:
    """Also a line of a script that the unit runs."""
    of_script = replace(STOP, commands=(SITE,), lines=((SITE, "logger 'stopping'"), (SITE, command)))
    found = reached(of_script if is_script else replace(STOP, commands=(command,)))
    assert [one.reached for one in found] == ([(FOREIGN,)] if is_reached else [])


@pytest.mark.parametrize(
    ("lines", "is_reached"),
    [
        (["PIDS=$(ps ax | grep ' kafka\\.Kafka ' | grep java | awk '{print $1}')", "kill -s TERM $PIDS"], True),
        (["PIDS=`pgrep -f kafka.Kafka`", "for pid in $PIDS; do", "kill $pid", "done"], True),
        (["pgrep -f kafka.Kafka |", "while read pid; do kill $pid; done"], True),
        (["find_it() {", "pgrep -f kafka.Kafka", "}", "PID=$(find_it)", "kill $PID"], True),
        (["stop() {", 'kill "$1"', "}", "for one in $(jps | grep Kafka); do stop $one; done"], True),
        (["pgrep -f kafka.Kafka || exit 0", "kill $(cat /run/kafka.pid)"], False),
        (["if ps -p $PID >/dev/null; then kill $PID; fi"], True),  # nothing that was read sets it
        (["read PID < /run/kafka.pid", "if ps -p $PID >/dev/null; then kill $PID; fi"], False),
        (['PID=$(<"$PIDFILE")', 'kill -s "$SIGNAL" "$PID"'], False),
        (["FILES=/run/kafka*.pid", "kill $(cat $FILES)"], True),
        (["PID=$(pgrep -u kafka)", 'test -n "$PID" || PID=$(cat /run/kafka.pid)', "kill ${PID}"], True),
        (["stop() { kill -TERM $1; }", "stop $(cat /run/kafka.pid)"], False),
        (["find_it() { cat /run/kafka.pid; }", "kill $(find_it)"], False),
        (["kill -TERM $1"], True),
        (['PID="${PID:-}"', "kill $PID"], True),
        (
            [
                "PIDS=",
                'A=""',
                'PIDS="$PIDS $(cat /run/kafka.pid)"',
                *['PIDS="$A $PIDS $PIDS"', 'A="$A $PIDS"'] * 9,
                "kill $PIDS",
            ],
            False,
        ),
        (["one() { one; cat /run/kafka.pid; }", "kill $(one)"], False),
        (["set -- $(pgrep -u kafka)", "stop() { kill $1; }", "stop $MAINPID"], True),
        (["MAINPID=$(pgrep -u kafka)", "kill $MAINPID"], True),
        (["kill $(cat <(pgrep -u kafka))"], True),
        (["kill $(cat /run/kafka.pid /run/kafka-b.pid)"], True),
        (["FILE=$(find /run -name kafka.pid)", "kill $(cat $FILE)"], True),
        (['FILE="$(dirname "$0")/kafka.pid"', 'kill "$(cat "$FILE")"'], False),
        (["pgrep -u kafka | while read -r user pid; do kill $pid; done"], True),
        (["mapfile -t PIDS < <(pgrep -u kafka)", 'kill "${PIDS[@]}"'], True),
        (["FILE=/etc/kafka/server.properties", 'pkill -f "kafka.Kafka $FILE"'], False),
        (["FILE=/etc/kafka-b/server.properties", 'pkill -f "kafka.Kafka ${FILE}"'], True),
        (["FILE=/etc/kafka/server.properties", "FILE=$(find_it)", "pkill -f $FILE"], True),
        (["UNIT=kafka.service", "systemctl kill -s TERM $UNIT"], False),
        (
            [
                "PIDFILE=/var/run/kafka/kafka.pid",
                'if [ -f "$PIDFILE" ]; then',
                'PID=`cat "$PIDFILE"`',
                'kill -15 "$PID" || exit 1',
                'while kill -0 "$PID" 2>/dev/null; do sleep 1; done',
                "fi",
            ],
            False,
        ),
        (["java -jar drain.jar &", "CHILD=$!", "trap 'kill $CHILD' EXIT", "kill -TERM $MAINPID"], False),
        (["PID=$(ps -ef | grep '[k]afka.Kafka /etc/kafka/server.properties' | awk '{print $2}')", "kill $PID"], False),
        (["KILL=/bin/kill", "PID=$(pidof java)", "$KILL -TERM $PID"], True),
        (["KILL=/bin/kill", "PID=$(cat /run/kafka.pid)", "$KILL -TERM $PID"], False),
        (["cd /opt/kafka", "bin/kafka-server-stop.sh"], True),
        (['"$KAFKA_HOME"/bin/kafka-server-stop.sh'], True),
        (["$KAFKA_HOME/bin/kafka-server-stop.sh"], True),
        (["$BIN/pkill -u kafka"], True),
        (["PID=$(cat /run/kafka.pid)", "ps ax | grep -q kafka.Kafka && kill $PID"], False),
        (["pgrep -f kafka.Kafka >/dev/null && kill -TERM $MAINPID"], False),
        (["PID=$(pgrep -f kafka.Kafka)", "curl -s localhost:8080/drain?pid=$PID"], False),
    ],
)
def test_a_script_reaches_what_it_finds_only_if_it_sends_it_a_signal(lines: list[str], *, is_reached: bool) -> None:
    found = reached(replace(STOP, commands=(SITE,), lines=tuple((SITE, line) for line in lines)))
    assert [one.path for one in found] == ([SITE] if is_reached else [])


@pytest.mark.parametrize(
    ("change", "is_reached"),
    [
        ({}, False),
        ({"user_id": 0}, True),
        ({"user_id": None}, True),
        ({"is_privileged": True}, True),
        ({"commands": (f"/usr/bin/sudo {SCRIPT}",)}, True),
    ],
)
def test_a_process_of_another_user_is_reached_by_root_or_if_the_user_is_unknown(
    change: dict[str, object], *, is_reached: bool
) -> None:
    other = replace(FOREIGN, user_id=1001, user="kafka-b")
    stop = replace(replace(STOP, commands=(SCRIPT,), processes=(other,)), **change)
    assert bool(reached(stop)) is is_reached


def test_a_script_gets_the_words_of_its_command_and_systemd_replaces_two_dollar_signs() -> None:
    lines = ((SITE, "kill -TERM $1"),)
    assert reached(replace(STOP, commands=(f"{SITE} $MAINPID",), lines=lines)) == []
    assert reached(replace(STOP, commands=(f"{SITE} $OTHER",), lines=lines)) != []
    assert reached(replace(STOP, commands=("/bin/sh -c PID=$$(cat /run/kafka.pid); kill $$PID",))) == []
    assert reached(replace(STOP, commands=("/bin/sh -c PID=$$(pidof java); kill $$PID",))) != []


def test_a_service_manager_acts_with_rights_of_its_own() -> None:
    other = replace(FOREIGN, user_id=1001, user="kafka-b")
    assert reached(replace(STOP, commands=("/usr/bin/systemctl stop kafka-b.service",), processes=(other,))) != []


def test_a_command_line_that_nobody_has_seen_differs_only_by_its_file() -> None:
    """A node that does not run can start with every option."""
    by_option = replace(STOP, commands=("/usr/bin/pkill -f kafka.logs.dir=/var/log/kafka",), processes=())
    assert reached(by_option, OTHER) != []
    by_file = replace(STOP, commands=("/usr/bin/pkill -f [/]etc/kafka/server\\.properties",), processes=())
    assert reached(by_file, OTHER) == []


def test_what_is_reached_is_named_with_a_remedy_that_stops_this_unit_alone() -> None:
    (found,) = reached(replace(STOP, commands=(SCRIPT,)), OTHER)
    assert found.sentence == (
        f"kafka.service on host h has ExecStop={SCRIPT}, which can also stop node 7 of this host and kafka-b.service "
        "(/etc/kafka-b/server.properties), which is not a node of this cluster."
    )
    assert "write the lines `[Service]` and `ExecStop=` there. systemd then sends SIGTERM" in found.remedy
    (script,) = reached(replace(STOP, commands=(SITE,), lines=((SITE, "logger x"), (SITE, SCRIPT))))
    assert script.sentence.startswith(
        f"ExecStop= of kafka.service on host h runs {SITE}: `{SCRIPT}`, which can also stop"
    )
    assert "alone, by $MAINPID" in script.remedy
    (after,) = reached(replace(STOP, after=(SCRIPT,)))
    assert (after.setting, "SIGTERM" in after.remedy) == ("ExecStopPost", False)


def test_processes_that_the_host_hides_are_not_known_to_be_out_of_reach() -> None:
    hidden = replace(STOP, commands=(f"{SCRIPT} --node-id=1",), processes=None)
    (found,) = reached(hidden)
    assert found.reached == ()
    assert "the host does not show its processes to the SSH user" in found.sentence
    assert reached(replace(hidden, commands=("/bin/kill $MAINPID",))) == []
    assert reached(replace(hidden, commands=())) == []


def test_a_node_of_the_inventory_is_known_by_its_unit_and_counts_while_it_does_not_run() -> None:
    process = replace(FOREIGN, unit="kafka-7.service", configuration="../x.properties", node_id="", user_id=1001)
    (found,) = reached(replace(STOP, commands=(SCRIPT,), processes=()), OTHER)
    assert [one.node for one in found.reached] == [OTHER]
    assert reached(replace(STOP, commands=(SCRIPT,), processes=(process,)), OTHER) == [], "it has another user"
    assert reached(replace(STOP, commands=(f"{SCRIPT} --node-id=1",), processes=()), OTHER) == []
