"""Options that a wrapper gives to Java, as bash does it, are never gone; and a text that shows all of them says so."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_rollout.nodes.runtimes.hosts.option_sources import ScriptScope
from kafka_rollout.nodes.runtimes.hosts.shell_constructs import is_shell, unclear_commands
from kafka_rollout.nodes.runtimes.hosts.text_files import text_of
from kafka_rollout.releases.facts import Release
from tools.testbed.start_scripts import RUN_CLASS, server_start

AGENT = "-javaagent:/x.jar=7071:/x.yml"
HEAP = ["-Xmx6g", "-Xms6g"]
READ = [
    ('export KAFKA_HEAP_OPTS="-Xmx6g -Xms6g"', HEAP),
    ('export KAFKA_HEAP_OPTS="${KAFKA_HEAP_OPTS:--Xmx6g -Xms6g}"', HEAP),
    ("export KAFKA_HEAP_OPTS=${KAFKA_HEAP_OPTS:--Xmx6g}", ["-Xmx6g"]),
    (': "${KAFKA_HEAP_OPTS:=-Xmx6g -Xms6g}"; export KAFKA_HEAP_OPTS', HEAP),
    (': ${KAFKA_HEAP_OPTS="-Xmx6g -Xms6g"}; export KAFKA_HEAP_OPTS', HEAP),
    ('export KAFKA_HEAP_OPTS="${HEAP:--Xmx${MB:-6g} -Xms${MB:-${OTHER:-6g}}}"', HEAP),
    ('MB=6; : "${HEAP:=${MB}g}"; export KAFKA_HEAP_OPTS="-Xmx$HEAP -Xms${HEAP}"', HEAP),
    ("M=-Xmx; M+=6; M+=g; export KAFKA_HEAP_OPTS=$M", ["-Xmx6g"]),
    ('[ -z "$NONE" ] || S=x; export KAFKA_HEAP_OPTS="-Xmx6g$S"', ["-Xmx6g"]),
    ('B="6g -Xms6g"; export KAFKA_HEAP_OPTS="-Xmx$B"', HEAP),
    (f'export KAFKA_OPTS="${{KAFKA_OPTS:+$KAFKA_OPTS }}{AGENT}"', [AGENT]),
    (f'export KAFKA_OPTS="${{KAFKA_OPTS}}{AGENT}"', [AGENT]),
    (f"export KAFKA_OPTS=$KAFKA_OPTS{AGENT}", [AGENT]),
    (f'export KAFKA_OPTS="${{KAFKA_OPTS:-}} {AGENT}"', [AGENT]),
    (f'export KAFKA_OPTS="${{KAFKA_OPTS:-{AGENT}}}"', [AGENT]),
    (f'export KAFKA_OPTS="${{HOME:+{AGENT}}}"', [AGENT]),
    ('for f in FOLDER/*.jar; do KAFKA_OPTS="$KAFKA_OPTS -javaagent:$f=1"; done; export KAFKA_OPTS', None),
    ('O=(-Xmx6g "-Xms6g"); export KAFKA_HEAP_OPTS="${O[*]}"', HEAP),
    ('add() { KAFKA_OPTS="$KAFKA_OPTS $1"; }\nadd -Xmx6g\nexport KAFKA_OPTS', ["-Xmx6g"]),
    ('case "$(hostname)" in\n  x) H=4g ;;\n  *) H=6g ;;\nesac\nexport KAFKA_HEAP_OPTS="-Xmx$H"', ["-Xmx6g"]),
    ("if [[ $HOME =~ ^/ && -d / ]]; then export KAFKA_HEAP_OPTS=-Xmx6g; fi", ["-Xmx6g"]),
    ('set -a; KAFKA_HEAP_OPTS="-Xmx6g"', ["-Xmx6g"]),
    ("KAFKA_HEAP_OPTS=-Xmx6g exec sh ./kafka-server-start.sh", ["-Xmx6g"]),
    ("exec env KAFKA_HEAP_OPTS=-Xmx6g ./kafka-server-start.sh", ["-Xmx6g"]),
    ('D=$(cd "$(dirname "$0")" && pwd); export KAFKA_OPTS="-Da=x:$D"', None),
]
UNCLEAR = [
    'for o in $(cat jvm.options); do KAFKA_OPTS="$KAFKA_OPTS $o"; done; export KAFKA_OPTS',
    "for o in `grep -v '^#' jvm.options`; do KAFKA_OPTS=\"$KAFKA_OPTS $o\"; done; export KAFKA_OPTS",
    'while read -r o; do KAFKA_OPTS="$KAFKA_OPTS $o"; done < jvm.options; export KAFKA_OPTS',
    'V=6.0g; export KAFKA_HEAP_OPTS="${V/.0/} -Xmx${V/.0/}"',
    'V=-Xmx6g.x; export KAFKA_HEAP_OPTS="${V%%.*}"',
    'declare -A H; H[x]=-Xmx; export KAFKA_HEAP_OPTS="${H[x]}6g"',
    'printf -v KAFKA_HEAP_OPTS "%s6g" -Xmx; export KAFKA_HEAP_OPTS',
    'add() { KAFKA_OPTS="$KAFKA_OPTS -$1"; }\nadd Xmx6g\nexport KAFKA_OPTS',
    "export KAFKA_HEAP_OPTS=$'\\x2dXmx6g'",
    'export KAFKA_HEAP_OPTS="$(echo -X)mx6g"',
    'eval "export KAFKA_HEAP_OPTS=-${X:-X}mx6g"',
    'V="export KAFKA_HEAP_OPTS=-X"; . /dev/stdin <<EOF\n${V}mx6g\nEOF',
    "source <(echo export KAFKA_HEAP_OPTS=-X''mx6g)",
    "export $(cat jvm.env | xargs)",
    "export KAFKA_HEAP_OPTS=$(awk '{print}' jvm.options)",
    'IFS=_; V=-Xmx6g_-Xms6g; export KAFKA_HEAP_OPTS="$(echo $V)"',
    "X=-Xmx6; Y=X; export KAFKA_HEAP_OPTS=${!Y}g",
    "((N=6)); export KAFKA_HEAP_OPTS=-Xmx${N}g",
    'mapfile -t A < jvm.options; export KAFKA_HEAP_OPTS="${A[*]}"',
    "bash -c 'KAFKA_HEAP_OPTS=-X\"\"mx6g ./kafka-server-start.sh'; exit",
    "python3 -c 'print()'",
    "A='$KAFKA_HEAP_OPTS'; export KAFKA_OPTS=\"$A\"",
]


def _java(folder: Path, script: str) -> list[str]:
    """Return the options that the start script gets from a wrapper, run by bash."""
    start = folder / "kafka-server-start.sh"
    start.write_text("#!/bin/bash\nprintf '%s\\n' $KAFKA_HEAP_OPTS $KAFKA_OPTS\n")
    start.chmod(0o755)
    (folder / "jvm.options").write_text("-Xmx6g\n")
    (folder / "jvm.env").write_text("KAFKA_OPTS=-Xmx6g\n")
    (folder / "agent.jar").touch()
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/root"}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return ran.stdout.split()


def _scope(script: str) -> tuple[ScriptScope, list[str]]:
    text = text_of("/w", script)
    unclear = unclear_commands(text.lines)
    return ScriptScope((text,), {}, is_whole=not unclear), unclear


@pytest.mark.parametrize(("line", "options"), READ, ids=[line[:50] for line, _ in READ])
def test_an_option_that_the_text_of_a_wrapper_shows_is_read(
    tmp_path: Path, line: str, options: list[str] | None
) -> None:
    script = line.replace("FOLDER", str(tmp_path)) + "\nexec ./kafka-server-start.sh"
    given_ = _java(tmp_path, script)
    assert options is None or given_ == options
    scope, unclear = _scope(script)
    assert (unclear, [word for word in given_ if not scope.explains(word)]) == ([], [])
    assert not scope.explains("-Xmx7g")
    assert not scope.explains("-Dother=value")


@pytest.mark.parametrize("line", UNCLEAR)
def test_a_text_that_does_not_show_its_options_is_unclear(tmp_path: Path, line: str) -> None:
    script = f"{line}\nexec ./kafka-server-start.sh"
    assert _java(tmp_path, script) is not None
    assert _scope(script)[1] != []


@pytest.mark.parametrize("script", [RUN_CLASS, server_start(Release(3, 9, 1)), server_start(Release(4, 3, 1))])
def test_scripts_of_kafka_show_all_their_options(script: str) -> None:
    assert unclear_commands(text_of("/w", script).lines) == []


# Lines of kafka-run-class.sh of 4.4 that the scripts above do not have.
OF_KAFKA = r"""
if [[ $(uname -a) =~ "CYGWIN" || $(uname -a) =~ "MINGW" || $(uname -a) =~ "MSYS" ]]; then
  export MSYS2_ARG_CONV_EXCL="-Xlog:gc*:file=;-Dlog4j2.configurationFile=;$MSYS2_ARG_CONV_EXCL"
fi
SCALA_VERSION=`grep "^scalaVersion=" "$base_dir/gradle.properties" | cut -d= -f 2`
VERSION_NO_DOTS=`echo $UPGRADE_KAFKA_STREAMS_TEST_VERSION | sed 's/\.//g'`
SHORT_VERSION_NO_DOTS=${VERSION_NO_DOTS:0:((${#VERSION_NO_DOTS} - 1))}
for file in "$base_dir"/streams/upgrade-system-tests-$SHORT_VERSION_NO_DOTS/*.jar;
do
  CLASSPATH="$CLASSPATH":"$file"
done
if ! echo "$KAFKA_JMX_OPTS" | grep -qF -- '-Dcom.sun.management.jmxremote.rmi.port=' ; then
  KAFKA_JMX_OPTS="$KAFKA_JMX_OPTS -Dcom.sun.management.jmxremote.rmi.port=$JMX_PORT"
fi
(( WINDOWS_OS_FORMAT )) && LOG_DIR=$(cygpath --path --mixed "${LOG_DIR}")
DEFAULT_JAVA_DEBUG_OPTS="-agentlib:jdwp=transport=dt_socket,suspend=${DEBUG_SUSPEND_FLAG:-n},address=$JAVA_DEBUG_PORT"
JAVA_MAJOR_VERSION=$("$JAVA" -version 2>&1 | sed -E -n 's/.* version "([0-9]*).*$/\1/p')
if [[ "x$KAFKA_MODE" == "xnative" ]] && [[ "$*" == *"kafka.Kafka"* ]]; then
  exec $base_dir/kafka.Kafka start --config "$2"  $KAFKA_LOG4J_CMD_OPTS $KAFKA_JMX_OPTS $KAFKA_OPTS
else
  JAVA="$JAVA_HOME/bin/java"
  nohup "$JAVA" $KAFKA_HEAP_OPTS -cp "$CLASSPATH" $KAFKA_OPTS "$@" > "$CONSOLE_OUTPUT_FILE" 2>&1 < /dev/null &
fi
"""


def test_other_lines_of_kafkas_scripts_are_understood() -> None:
    assert unclear_commands(text_of("/w", OF_KAFKA).lines) == []


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("#!/bin/bash", True),
        ("#!/usr/bin/env bash", True),
        ("#! /bin/sh -eu", True),
        ("", True),
        ("#!/usr/bin/perl", False),
        ("#!/usr/bin/env python3", False),
        ("#!/bin/bash -l", False),
        ("#!/usr/bin/zsh", False),
    ],
)
def test_only_a_script_of_a_shell_is_read(first: str, expected: bool) -> None:
    assert is_shell(text_of("/w", f"{first}\nx=y\n").interpreter) is expected


@pytest.mark.parametrize(
    ("command", "is_clear"),
    [
        ("/w /etc/server.properties", True),
        ("/opt/kafka/bin/kafka-server-start.sh /etc/server.properties", True),
        ("/bin/sh -c 'KAFKA_OPTS=-Dx exec /opt/kafka/bin/kafka-server-start.sh /etc/x'", True),
        ("/bin/bash -c . /etc/env && exec /opt/kafka/bin/kafka-server-start.sh /etc/x", True),
        ("/usr/bin/nice -n 5 /w /etc/x", True),
        ("/usr/bin/env KAFKA_OPTS=-Dx /w", True),
        ("/bin/bash -lc /w", False),
        ("/usr/local/bin/launcher /opt/kafka/bin/kafka-server-start.sh /etc/x", False),
        ("/usr/bin/env -i /w", False),
    ],
)
def test_the_command_of_a_unit_is_read_as_a_script(command: str, is_clear: bool) -> None:
    assert (unclear_commands([command], programs={"/w"}, is_of_unit=True) == []) is is_clear


_NAMES = st.sampled_from(["KAFKA_HEAP_OPTS", "KAFKA_OPTS", "A", "B"])
_OPTIONS = st.sampled_from(
    ["-Xmx6g", "-Dx=y", AGENT, "-Da=${B:-c}", "-Db=$A", "-Xmx${B}g", "$A", "${B}", "$KAFKA_OPTS"]
)
_WORDS = st.lists(_OPTIONS, min_size=1, max_size=2).map(" ".join)
_FORMS = st.sampled_from(
    [
        'export N="W"',
        'N="$N W"',
        "N+=' V'",
        'N="${N:-W}"',
        'N="${N:+$N }W"',
        'N="${N-W}"',
        'N=${A:="W"}',
        ': "${N:=W}"',
        'N="${B:-${A:-W}} V"',
        '[ -n "$N" ] || N="W"',
        'if [ -z "$A" ]; then N="W"; else N="V $N"; fi',
        'case "$B" in "") N="W";; *) N="V";; esac',
        'for i in W V; do N="$N $i"; done',
        'for i in $A; do N="$N -De=$i"; done',
        'for i in FOLDER/*.jar; do N="$N -De=$i"; done',
        'while read -r i; do N="$N $i"; done < jvm.options',
        'N="$N $(cat jvm.options)"',
        'N=("W"); A="${N[0]} V"',
        'N="${A#-}"',
        'N="${B//c/-}Xmx5g"',
        'f() { N="$N $1 V"; }; f "W"',
        "set -- W; N=$1",
        'N=6; B="${N}"',
        'unset N; N="${N}W"',
        "N=-; N+=Xmx4g",
        "printf -v N '%sXmx3g' -",
        "N=-Xmx$(expr 1 + 1)g",
        'read -r N <<< "W"',
        'eval "N=\\"V\\""',
    ]
)
_LINES = st.builds(
    lambda form, name, one, two: form.replace("W", one).replace("V", two).replace("N", name),
    _FORMS,
    _NAMES,
    _WORDS,
    _WORDS,
)


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(st.lists(_LINES, min_size=1, max_size=4))
def test_what_bash_gives_is_never_gone(tmp_path: Path, lines: list[str]) -> None:
    body = "\n".join(lines).replace("FOLDER", str(tmp_path))
    script = f"{body}\nexport KAFKA_OPTS KAFKA_HEAP_OPTS\nexec ./kafka-server-start.sh"
    scope, unclear = _scope(script)
    if not unclear:
        assert [word for word in _java(tmp_path, script) if word.startswith("-") and not scope.explains(word)] == []
