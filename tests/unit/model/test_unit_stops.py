"""Which Kafka of a host a stop reaches, by the text that it executes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.model.host_state import JavaProcess, UnitStop
from kafka_rollout.model.topology import NodeSpec, Role, ServiceSpec
from kafka_rollout.model.unit_stops import StopReach, find_reached, find_reached_programs

SCRIPT = "/opt/kafka/bin/kafka-server-stop.sh"
SITE = "/usr/local/bin/stop-kafka"
NODE = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=ServiceSpec(host="h"))
OTHER = NodeSpec(
    node_id=7,
    name="kafka-7",
    roles=frozenset({Role.BROKER}),
    service=ServiceSpec(host="h", unit="kafka-7.service", configuration_file="/etc/kafka-7/server.properties"),
)
FOREIGN = JavaProcess(
    pid=77,
    unit="kafka-b.service",
    command=("/usr/bin/java", "-Xmx1g", "kafka.Kafka", "/etc/kafka-b/server.properties"),
    configuration="/etc/kafka-b/server.properties",
    user="kafka",
    user_id=997,
    node_id="1",
    roles="broker",
)
# The lines of Kafka's script by which it is known (bin/kafka-server-stop.sh).
LISTS = "PIDS=$(ps ax | grep ' kafka\\.Kafka ' | grep java | awk '{print $1}')"
READS = "ROLE=$(echo $@ | grep -o -- '--process-role=[^ ]*')\nID=$(echo $@ | grep -o -- '--node-id=[^ ]*')"
STOP = UnitStop(
    user_id=997,
    is_privileged=False,
    own=frozenset({50}),
    processes=(FOREIGN,),
    scripts={SCRIPT: f"{READS}\n{LISTS}\nkill -s $SIGNAL $PIDS"},
    pid_files={"/run/kafka.pid": (50,), "/run/gone.pid": (), "/run/stale.pid": (78,), "/run/b.pid": (50, 77)},
)
# Of another user, which cannot be reached by a signal of the stop.
ALIEN = replace(FOREIGN, user_id=1001, user="kafka-b")
REACHED, UNKNOWN, SPARED = "can also stop", "cannot tell", ""


def reached(stop: UnitStop, *others: NodeSpec, node: NodeSpec = NODE) -> list[StopReach]:
    return list(find_reached(stop, node, others, unit="kafka.service", host="h"))


def verdict(stop: UnitStop, *others: NodeSpec) -> str:
    found = reached(stop, *others)
    return REACHED if any(one.is_certain for one in found) else UNKNOWN if found else SPARED


def of_script(*lines: str, stop: UnitStop = STOP) -> UnitStop:
    return replace(stop, commands=(SITE,), scripts={**stop.scripts, SITE: "\n".join(lines)})


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (SCRIPT, REACHED),
        (f"{SCRIPT} --node-id=1", REACHED),  # another cluster has this id too
        (f"{SCRIPT} --node-id=2", SPARED),
        (f"{SCRIPT} --process-role=broker", REACHED),
        (f"{SCRIPT} --process-role=broker,controller", SPARED),
        (f"{SCRIPT} --node-id 2", REACHED),  # it knows its options only with `=`
        (f"{SCRIPT} --process-role=$ROLE", UNKNOWN),
        ("/usr/bin/kafka-server-stop --node-id=2", UNKNOWN),  # not read
        ("/usr/bin/kafka-server-stop", REACHED),
        ("/usr/bin/pkill -TERM -f kafka.Kafka", REACHED),
        ("/usr/bin/pkill -HUP -f kafka.Kafka", REACHED),
        ("/usr/bin/pkill -f kafka.Kafka --signal TERM", REACHED),
        ("/usr/bin/pkill -f /etc/kafka/server.properties", SPARED),
        ("/usr/bin/pkill -u kafka -f /etc/kafka/server.properties --signal TERM", SPARED),
        ("/usr/bin/pkill -f ka*", UNKNOWN),
        ("/usr/bin/pkill java", REACHED),
        ("/usr/bin/pkill node_exporter", SPARED),
        ("/usr/bin/pkill -F /run/kafka.pid", SPARED),
        ("/usr/bin/pkill --pidfile=/run/kafka.pid", SPARED),
        ("/usr/bin/pkill -F /run/b.pid", REACHED),
        ("/usr/bin/pkill -F /run/unread.pid", UNKNOWN),
        ("/usr/bin/pkill -u kafka java", REACHED),
        ("/usr/bin/pkill -TERM -u kafka", REACHED),
        ("/usr/bin/pkill --euid kafka", REACHED),
        ("/usr/bin/pkill -U 997", REACHED),
        ("/usr/bin/pkill -U997", UNKNOWN),
        ("/usr/bin/pkill -u kafka,root -P 1", UNKNOWN),
        ("/usr/bin/pkill -u other java", UNKNOWN),
        ("/usr/bin/killall -u other java", UNKNOWN),
        ("/usr/bin/killall -s TERM -u kafka java", REACHED),
        ("/usr/bin/killall --older-than 5m java", UNKNOWN),
        ("/usr/bin/killall -0 java", UNKNOWN),
        ("/usr/bin/pkill java -u kafka", REACHED),
        ("/usr/bin/pkill -g 0", UNKNOWN),
        ("/usr/bin/pkill -s 0", UNKNOWN),
        ("/usr/bin/pkill -P 1", UNKNOWN),
        ("/usr/bin/pkill -O 5 java", UNKNOWN),
        ("/usr/bin/pkill --inverse node_exporter", UNKNOWN),
        ("/usr/bin/pkill --new-option 5 node_exporter", UNKNOWN),
        ("/bin/sh -c 'while pkill -0 -f kafka.Kafka; do sleep 1; done'", SPARED),
        ("/bin/kill -TERM $MAINPID", SPARED),
        ("/bin/kill -TERM ${MAINPID}", SPARED),
        ("/bin/kill -1 $MAINPID", SPARED),
        ("/bin/kill -s TERM -- -$MAINPID", SPARED),
        ("/bin/kill -- -1", UNKNOWN),
        ("/bin/kill -1 -1", UNKNOWN),
        ("/bin/kill -1", UNKNOWN),
        ("/bin/kill -TERM 77", UNKNOWN),
        ("/bin/kill -TERM $OTHER", UNKNOWN),
        ("/bin/kill -TERM $MAINPID $OTHER", UNKNOWN),
        ("/bin/sh -c 'kill $(cat /run/kafka.pid) 2>/dev/null'", SPARED),
        ("/bin/sh -c 'kill `cat /run/kafka.pid`'", SPARED),
        ("/bin/sh -c 'kill $(cat /run/gone.pid)'", SPARED),  # no file, no target
        ("/bin/sh -c 'kill $(cat /run/stale.pid)'", SPARED),
        ("/bin/sh -c 'kill $(cat /run/b.pid)'", REACHED),
        ("/bin/sh -c 'kill $(cat /run/unread.pid)'", UNKNOWN),
        ("/bin/sh -c 'kill $(cat /run/kafka*.pid)'", UNKNOWN),
        ("/bin/sh -c 'kill $(cat /run/kafka.pid /run/b.pid)'", UNKNOWN),
        ("/bin/sh -c 'xargs kill -TERM < /run/kafka.pid'", UNKNOWN),
        ("/bin/sh -c 'kill -TERM $(pgrep -f kafka.Kafka)'", UNKNOWN),
        ("/bin/sh -c ps ax | grep kafka.Kafka | grep -v grep | awk '{print $1}' | xargs kill", UNKNOWN),
        ("/bin/sh -c 'ps ax | awk /kafka-b/ | xargs kill'", UNKNOWN),
        ("/bin/sh -c 'pgrep -u kafka | xargs -r kill -TERM'", UNKNOWN),
        ("/bin/sh -c 'kill $(lsof -t /opt/kafka/libs)'", UNKNOWN),
        ("/bin/sh -c 'lsof -ti :9092 | xargs kill'", UNKNOWN),
        ('/bin/sh -c "kill `pidof java`"', UNKNOWN),
        ("/bin/sh -c 'jcmd | grep kafka.Kafka | cut -d\" \" -f1 | xargs kill'", UNKNOWN),
        ("/bin/sh -c 'kill $(ps -u kafka -o pid=)'", UNKNOWN),
        ("/bin/sh -c 'kill $(ps -o pid= --ppid 1)'", UNKNOWN),
        ("/bin/sh -c 'kill $(grep -la kafka.Kafka /proc/[0-9]*/cmdline | cut -d/ -f3)'", UNKNOWN),
        ("/usr/bin/killall java", REACHED),
        ("/usr/bin/killall -s TERM -u kafka", UNKNOWN),
        ("/sbin/start-stop-daemon --stop --exec /usr/bin/java", UNKNOWN),
        ("/sbin/start-stop-daemon --stop --user kafka", UNKNOWN),
        ("/sbin/start-stop-daemon -K -u kafka --signal TERM", UNKNOWN),
        ("/usr/bin/skill -TERM -u kafka", UNKNOWN),
        ("/usr/bin/fuser -k -TERM 9092/tcp", UNKNOWN),
        ("/usr/bin/systemctl stop kafka-b.service", UNKNOWN),
        ("/usr/bin/systemctl kill --signal TERM kafka-b", UNKNOWN),
        ("/usr/bin/systemctl isolate rescue.target", UNKNOWN),
        ("/bin/sh -c 'kill $(systemctl show -p MainPID --value kafka-b.service)'", UNKNOWN),
        ("/usr/bin/supervisorctl stop kafka:*", UNKNOWN),
        ("/usr/sbin/service kafka-b stop", UNKNOWN),
        ("/usr/bin/docker kill kafka-b", UNKNOWN),
        ("/usr/bin/curl --unix-socket /run/docker.sock -X POST http://d/containers/kafka-b/stop", UNKNOWN),
        # What reads or executes something else.
        ("/usr/bin/perl -e 'kill 15, 77'", UNKNOWN),
        ("/usr/bin/python3 /opt/site/stop.py", UNKNOWN),
        ("/opt/site/stop", UNKNOWN),
        ("/usr/bin/setsid pkill java", UNKNOWN),
        ("/usr/bin/timeout 5 pkill java", UNKNOWN),
        ("/usr/bin/env pkill java", UNKNOWN),
        ("/usr/bin/nice pkill java", UNKNOWN),
        ("/usr/bin/nohup pkill java", UNKNOWN),
        ("/usr/bin/find /run -name x.pid -exec pkill -F {} ;", UNKNOWN),
        ("/bin/sh -c 'echo cGtpbGwgamF2YQ== | base64 -d | sh'", UNKNOWN),
        ("/bin/sh -c 'eval $KAFKA_STOP'", UNKNOWN),
        ("/bin/sh -c '. /etc/kafka/functions; stop_all'", UNKNOWN),
        ("/bin/sh -c 'source /etc/kafka/stop.sh'", UNKNOWN),
        ("/bin/bash -c '{pkill,java}'", UNKNOWN),
        ("/bin/sh -c '$STOP'", UNKNOWN),
        ("/bin/sh -c 'echo 1 > /sys/fs/cgroup/system.slice/kafka-b.service/cgroup.kill'", UNKNOWN),
        ("/bin/sh -x -c 'kill $MAINPID'", UNKNOWN),
        ("/usr/bin/sort --compress-program=/opt/site/stop -S1 /x", UNKNOWN),
        # What ends nothing.
        ("/usr/bin/logger 'kill java of kafka'", SPARED),
        ("/bin/rm -f /run/kafka.pid", SPARED),
        ("/bin/rm -f /run/*.pid", UNKNOWN),
        ("/bin/sleep 5", SPARED),
        ("/usr/bin/curl -fsS -X POST http://localhost:8080/drain", SPARED),
        ("/bin/sh -c 'for i in $(seq 60); do kill -0 $MAINPID || exit 0; sleep 1; done'", SPARED),
    ],
)
@pytest.mark.parametrize("is_script", [False, True])
def test_only_a_form_that_is_known_to_reach_its_own_unit_alone_spares_a_kafka_of_another_cluster(
    command: str, *, expected: str, is_script: bool
) -> None:
    """Also a line of a script that the unit runs."""
    stop = of_script("logger 'stopping'", command) if is_script else replace(STOP, commands=(command,))
    assert {one.reached for one in reached(stop)} == ({(FOREIGN,)} if expected else set())
    assert verdict(stop) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([LISTS, "kill -s TERM $PIDS"], UNKNOWN),
        (["PIDS=`pgrep -f kafka.Kafka`", "for pid in $PIDS; do", "kill $pid", "done"], UNKNOWN),
        (["pgrep -f kafka.Kafka |", "while read pid; do kill $pid; done"], UNKNOWN),
        (["find_it() {", "pgrep -f kafka.Kafka", "}", "PID=$(find_it)", "kill $PID"], UNKNOWN),
        (["stop() {", 'kill "$1"', "}", "for one in $(jps | grep Kafka); do stop $one; done"], UNKNOWN),
        (["kill() { pkill java; }", "kill $MAINPID"], REACHED),
        (["pgrep -f kafka.Kafka || exit 0", "kill $(cat /run/kafka.pid)"], SPARED),
        (["if ps -p $PID >/dev/null; then kill $PID; fi"], UNKNOWN),  # nothing that was read sets it
        (["FILES=/run/kafka*.pid", "kill $(cat $FILES)"], UNKNOWN),
        (["PID=$(pgrep -u kafka)", 'test -n "$PID" || PID=$(cat /run/kafka.pid)', "kill ${PID}"], UNKNOWN),
        (["kill -TERM $1"], UNKNOWN),
        (['PID="${PID:-}"', "kill $PID"], UNKNOWN),
        (["echo PIDFILE=/run/kafka.pid", "kill $(cat $PIDFILE)"], UNKNOWN),  # it assigns nothing
        (["F=/run/kafka.pid", "for F in /run/*; do kill $(cat $F); done"], UNKNOWN),
        (["set -- $(pgrep -u kafka)", "stop() { kill $1; }", "stop $MAINPID"], UNKNOWN),
        (["MAINPID=$(pgrep -u kafka)", "kill $MAINPID"], UNKNOWN),
        (["MAINPID=77", "kill $MAINPID"], UNKNOWN),
        (["kill $(cat <(pgrep -u kafka))"], UNKNOWN),
        (["FILE=$(find /run -name kafka.pid)", "kill $(cat $FILE)"], UNKNOWN),
        (["pgrep -u kafka | while read -r user pid; do kill $pid; done"], UNKNOWN),
        (["mapfile -t PIDS < <(pgrep -u kafka)", 'kill "${PIDS[@]}"'], UNKNOWN),
        (["FILE=/etc/kafka/server.properties", 'pkill -f "kafka.Kafka $FILE"'], SPARED),
        (["FILE=/etc/kafka-b/server.properties", 'pkill -f "kafka.Kafka ${FILE}"'], REACHED),
        (["FILE=/etc/kafka/server.properties", "FILE=$(find_it)", "pkill -f $FILE"], UNKNOWN),
        (
            [
                "PIDFILE=/run/kafka.pid",
                'if [ -f "$PIDFILE" ]; then',
                'PID=`cat "$PIDFILE"`',
                'kill -15 "$PID" || exit 1',
                "n=0",
                'while kill -0 "$PID" 2>/dev/null; do sleep 1; n=$((n + 1)); done',
                'echo "stopped at $(date)" >> /var/log/kafka/stop.log',
                "fi",
            ],
            SPARED,
        ),
        (["KILL=/bin/kill", "PID=$(pidof java)", "$KILL -TERM $PID"], UNKNOWN),
        (["KILL=/bin/kill", "PID=$(cat /run/kafka.pid)", "$KILL -TERM $PID"], SPARED),
        (["PATH=/opt/site:$PATH", "sleep 1"], UNKNOWN),
        (["cd /opt/kafka", "bin/kafka-server-stop.sh"], REACHED),
        (['"$KAFKA_HOME"/bin/kafka-server-stop.sh'], REACHED),
        (["$KAFKA_HOME/bin/kafka-server-stop.sh"], REACHED),
        (["$BIN/pkill -u kafka"], UNKNOWN),
        (['p"kill" java'], REACHED),
        (["PID=$(cat /run/kafka.pid)", "ps ax | grep -q kafka.Kafka && kill $PID"], SPARED),
        (["pgrep -f kafka.Kafka >/dev/null && kill -TERM $MAINPID"], SPARED),
        (["PID=$(pgrep -f kafka.Kafka)", "curl -s localhost:8080/drain?pid=$PID"], SPARED),
        (["cat <<END", "kill 77", "END"], UNKNOWN),
        (["echo $'\\'' ; pkill java ; echo $'\\''"], UNKNOWN),
        (["echo '", "a' ; pkill java"], UNKNOWN),
        (["kill $MAINPID \\"], UNKNOWN),
        (["/usr/local/lib/inner $MAINPID"], SPARED),
        (["/usr/local/lib/inner 77"], UNKNOWN),
        (["exec /usr/local/lib/gone"], UNKNOWN),
        ([SITE], UNKNOWN),
    ],
)
def test_every_command_of_a_script_must_be_known(lines: list[str], expected: str) -> None:
    stop = of_script(*lines)
    assert verdict(replace(stop, scripts={**stop.scripts, "/usr/local/lib/inner": "kill -TERM ${1}"})) == expected


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (['[ -n "$F" ] || F=/run/kafka.pid', "kill $(cat $F)"], UNKNOWN),
        (['[ -n "$F" ] ||', "F=/run/kafka.pid", "kill $(cat $F)"], UNKNOWN),
        (['test -z "$F" && F=/run/kafka.pid', "kill $(cat $F)"], UNKNOWN),
        (['if [ -z "$F" ]; then F=/run/gone.pid; fi', "kill $(cat $F)"], UNKNOWN),
        (['if [ -z "$F" ]', "then", "echo done; F=/run/gone.pid", "fi", "kill $(cat $F)"], UNKNOWN),
        (['if [ -n "$F" ]; then sleep 1; else F=/run/gone.pid; fi', "kill $(cat $F)"], UNKNOWN),
        (['if [ -z "$F" ]; then F=/run/gone.pid; else kill $(cat $F); fi'], UNKNOWN),
        (["(F=/run/kafka.pid)", "kill $(cat $F)"], UNKNOWN),
        (["( sleep 1; F=/run/kafka.pid )", "kill $(cat $F)"], UNKNOWN),
        (["F=/run/kafka.pid & kill $(cat $F)"], UNKNOWN),
        (["F=/run/kafka.pid | kill $(cat $F)"], UNKNOWN),
        (["for i in 1 2; do F=/run/kafka.pid; done", "kill $(cat $F)"], UNKNOWN),
        (["for i in 1 2; do kill $(cat $F); F=/run/kafka.pid; done"], UNKNOWN),
        (["set_file() {", "F=/run/kafka.pid", "}", "kill $(cat $F)"], UNKNOWN),
        (["kill $(cat $F)", "F=/run/kafka.pid"], UNKNOWN),
        (["F=/run/kafka.pid", "kill $(cat $F)"], SPARED),
        (["sleep 1; export F=/run/kafka.pid && kill $(cat $F)"], SPARED),
        (['if [ -d "$(dirname /run/x)" ]; then exit 0; fi', "F=/run/kafka.pid", "kill $(cat $F)"], SPARED),
        (["stop_it() { kill $1; }", "(sleep 1)", "F=/run/kafka.pid", "kill $(cat $F)"], UNKNOWN),  # by kill $1 alone
        (["(sleep 1)", "D=/run", "F=$D/kafka.pid", "while kill -0 $(cat $F); do sleep 1; done"], SPARED),
        (["F=/run/kafka.pid", "sh -c 'kill $(cat $F)'"], UNKNOWN),  # the inner shell has that of the unit
        (["F=/run/kafka.pid", 'sh -c "kill $(cat $F)"'], SPARED),
        (["if true; then F=/run/kafka.pid; kill $(cat $F); fi"], SPARED),
        (["if true; then F=/run/b.pid; kill $(cat $F); fi"], REACHED),
    ],
)
def test_a_literal_is_the_value_only_after_an_assignment_that_is_sure_to_have_run(
    lines: list[str], expected: str
) -> None:
    """Else the environment of the unit can have given another one."""
    assert verdict(of_script(*lines)) == expected


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, SPARED),
        ({"user_id": 0}, REACHED),
        ({"user_id": None}, REACHED),
        ({"is_privileged": True}, REACHED),
        *(
            ({"commands": (command,)}, SPARED)
            for command in (
                "/usr/bin/killall java",
                "/bin/kill -- -1",
                "/bin/sh -c ps ax | grep kafka.Kafka | awk '{print $1}' | xargs kill -TERM",
            )
        ),
        *(
            ({"commands": (command,)}, UNKNOWN)
            for command in (
                f"/usr/bin/sudo {SCRIPT}",
                "/bin/su -c 'pkill java' kafka-b",
                "/usr/bin/systemctl stop kafka-b.service",
                "/opt/site/stop",
                "/usr/bin/perl -e 1",
                "/bin/sh -c 'pgrep java | xargs sudo kill'",
                "/bin/sh -c 'kill $(sudo cat /run/x.pid)'",
            )
        ),
    ],
)
def test_a_process_of_another_user_is_reached_by_root_or_by_what_can_have_other_rights(
    change: dict[str, object], *, expected: str
) -> None:
    assert verdict(replace(replace(STOP, commands=(SCRIPT,), processes=(ALIEN,)), **change)) == expected


def test_without_another_kafka_every_stop_spares_the_others() -> None:
    assert reached(replace(STOP, commands=("/opt/site/stop",), after=("/usr/bin/perl -e 1",), processes=())) == []


def test_a_script_gets_the_words_of_its_command_and_systemd_replaces_dollar_signs() -> None:
    stop = of_script("kill -TERM $1")
    assert verdict(replace(stop, commands=(f"{SITE} $MAINPID",))) == SPARED
    assert verdict(replace(stop, commands=(f"{SITE} $OTHER",))) == UNKNOWN
    assert verdict(replace(of_script("shift", "kill $1"), commands=(f"{SITE} $MAINPID 77",))) == UNKNOWN
    assert verdict(replace(STOP, commands=("/bin/sh -c PID=$$(cat /run/kafka.pid); kill $$PID",))) == SPARED
    assert verdict(replace(STOP, commands=("/bin/sh -c PID=$$(cat /run/kafka.pid); kill ${PID}",))) == UNKNOWN
    assert verdict(replace(STOP, commands=("/bin/sh -c PID=$$(pidof java); kill $$PID",))) == UNKNOWN


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("/usr/bin/pkill -f kafka.Kafka /etc/kafka/server.properties", UNKNOWN),  # without quotes, they are two words
        ("/bin/sh -c pkill java a b", UNKNOWN),  # `a` and `b` can be words of the shell
        (f"/bin/sh -c {SCRIPT} --node-id=2", UNKNOWN),  # the option too
        (f"/bin/sh -c sleep 1; {SCRIPT} --node-id=2", SPARED),
        ("/bin/sh -c /bin/kill $MAINPID; sleep 1", SPARED),
        ("/bin/sh -c /bin/kill $MAINPID a", UNKNOWN),
    ],
)
def test_where_a_word_ends_is_unknown_because_systemd_shows_no_quotes(command: str, expected: str) -> None:
    assert verdict(replace(STOP, commands=(command,))) == expected


def test_a_line_break_in_a_word_ends_a_command_of_the_shell_alone() -> None:
    assert verdict(replace(STOP, commands=("/bin/sh -c sleep 1\npkill -f kafka.Kafka",))) == REACHED
    assert verdict(replace(STOP, commands=("/bin/sh -c sleep 1\nkill $MAINPID",))) == SPARED
    assert verdict(replace(STOP, commands=("/opt/site/stop a\nb",))) == UNKNOWN


def test_a_script_with_the_name_of_kafkas_is_judged_by_its_text() -> None:
    old = {SCRIPT: f"{LISTS}\nkill -s $SIGNAL $PIDS"}
    site = {SCRIPT: "kill -TERM $MAINPID"}
    by_id = replace(STOP, commands=(f"{SCRIPT} --node-id=2",))
    assert verdict(replace(by_id, scripts=old)) == REACHED, "a script before 3.7.0 has no filters"
    assert verdict(replace(by_id, scripts=site)) == SPARED
    assert verdict(replace(by_id, scripts={})) == UNKNOWN


def test_the_owner_of_the_inventory_answers_for_what_the_tool_cannot_tell_and_for_nothing_else() -> None:
    service = ServiceSpec(host="h", stop_spares_others=True)
    node = replace(NODE, service=service)
    (unknown,) = reached(replace(STOP, commands=("/opt/site/stop",)), node=node)
    assert unknown.is_accepted
    assert "The inventory says that it stops kafka.service alone." in unknown.sentence
    (certain,) = reached(replace(STOP, commands=(SCRIPT,)), node=node)
    assert not certain.is_accepted
    assert not reached(replace(STOP, commands=("/opt/site/stop",)))[0].is_accepted


def test_a_command_line_that_nobody_has_seen_differs_only_by_its_file() -> None:
    """A node that does not run can start with every option."""
    by_option = replace(STOP, commands=("/usr/bin/pkill -f kafka.logs.dir=/var/log/kafka",), processes=())
    assert verdict(by_option, OTHER) == UNKNOWN
    by_file = replace(STOP, commands=("/usr/bin/pkill -f [/]etc/kafka/server\\.properties",), processes=())
    assert reached(by_file, OTHER) == []


def test_what_is_reached_is_named_with_a_remedy_that_stops_this_unit_alone() -> None:
    (found,) = reached(replace(STOP, commands=(SCRIPT,)), OTHER)
    assert found.sentence == (
        f"kafka.service on host h has ExecStop={SCRIPT}, which can also stop node 7 of this host and kafka-b.service "
        "(/etc/kafka-b/server.properties), which is not a node of this cluster."
    )
    assert "write the lines `[Service]` and `ExecStop=` there. systemd then sends SIGTERM" in found.remedy
    (script,) = reached(of_script("logger x", SCRIPT))
    assert script.sentence.startswith(
        f"ExecStop= of kafka.service on host h runs {SITE}: `{SCRIPT}`, which can also stop"
    )
    assert "alone, by $MAINPID" in script.remedy
    (after,) = reached(replace(STOP, after=(SCRIPT,)))
    assert (after.setting, "SIGTERM" in after.remedy) == ("ExecStopPost", False)


def test_what_the_tool_cannot_tell_is_named_with_what_an_operator_can_do() -> None:
    (found,) = reached(replace(STOP, commands=("/opt/site/stop --all",)), OTHER)
    assert found.sentence == (
        "kafka.service on host h has ExecStop=/opt/site/stop --all. The tool cannot tell whether this also stops "
        "node 7 of this host and kafka-b.service (/etc/kafka-b/server.properties), which is not a node of this "
        "cluster: /opt/site/stop is not a shell script that the SSH user can read."
    )
    assert "write the lines `[Service]` and `ExecStop=` there" in found.remedy
    assert "such as `kill $MAINPID`" in found.remedy
    assert "set `stop_spares_others: true` in `service` of the node" in found.remedy
    for lines, shown in (
        (["sleep 1", 'PID="$(pidof java)"', "kill  $PID; true"], "kill $PID"),
        (["sleep 1", "FILE=/run/unread.pid", "kill $(cat $FILE)"], "kill $(cat /run/unread.pid)"),
        (["sleep 1", "cat <<END", "END"], "cat <<END"),
    ):
        (script,) = reached(of_script(*lines))
        assert f"runs {SITE}: `{shown}`. The tool cannot tell" in script.sentence


def test_processes_that_the_host_hides_are_not_known_to_be_out_of_reach() -> None:
    hidden = replace(STOP, commands=(f"{SCRIPT} --node-id=1",), processes=None)
    (found,) = reached(hidden)
    assert (found.reached, found.is_certain) == ((), False)
    assert "another Kafka of this host, which does not show its processes to the SSH user." in found.sentence
    for command, is_reached in (
        ("/bin/kill $MAINPID", False),
        ("/bin/sh -c kill $(cat /run/kafka.pid)", False),  # it is the node's own process
        ("/bin/sh -c kill $(cat /run/stale.pid)", True),
        ("/opt/site/stop", True),
    ):
        assert bool(reached(replace(hidden, commands=(command,)))) is is_reached
    assert reached(replace(hidden, commands=())) == []


def test_a_node_of_the_inventory_is_known_by_its_unit_and_counts_while_it_does_not_run() -> None:
    process = replace(FOREIGN, unit="kafka-7.service", configuration="../x.properties", node_id="", user_id=1001)
    (found,) = reached(replace(STOP, commands=(SCRIPT,), processes=()), OTHER)
    assert [one.node for one in found.reached] == [OTHER]
    assert reached(replace(STOP, commands=(SCRIPT,), processes=(process,)), OTHER) == [], "it has another user"
    assert reached(replace(STOP, commands=(f"{SCRIPT} --node-id=1",), processes=()), OTHER) == []


CONNECT = JavaProcess(
    pid=20,
    unit="connect.service",
    program="org.apache.kafka.connect.cli.ConnectDistributed",
    command=("java", "-Xmx1G", "org.apache.kafka.connect.cli.ConnectDistributed", "/etc/c.properties"),
    user="kafka",
    user_id=997,
)


@pytest.mark.parametrize(
    ("command", "is_reached"),
    [
        ("/usr/bin/pkill -u kafka java", True),
        ("/usr/bin/pkill -TERM -u 997", True),
        ("/usr/bin/killall java", True),
        ("/usr/bin/killall -u other java", False),
        ("/usr/bin/pkill java", True),
        ("/usr/bin/pkill -f kafka.Kafka", False),
        ("/usr/bin/pkill -f org.apache.kafka", True),
        ("/bin/sh -c 'kill -TERM $MAINPID'", False),
        ("/usr/local/bin/unknown", False),
        (SCRIPT, False),
    ],
)
def test_other_java_programs_are_reached_by_what_certainly_finds_them(command: str, *, is_reached: bool) -> None:
    stop = replace(STOP, commands=(command,), processes=(), programs=(CONNECT,))
    found = list(find_reached_programs(stop, NODE))
    assert [one.programs for one in found] == ([(CONNECT,)] if is_reached else [])


def test_a_program_of_another_user_is_not_reached_by_a_stop_without_rights() -> None:
    other = replace(CONNECT, user="other", user_id=1001)
    stop = replace(STOP, commands=("/usr/bin/pkill java",), processes=(), programs=(other,))
    assert list(find_reached_programs(stop, NODE)) == []
    assert list(find_reached_programs(replace(stop, is_privileged=True), NODE))
