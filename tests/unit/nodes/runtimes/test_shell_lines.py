"""Whether scripts lose the value that a variable has before: what is read, and what bash does."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kafka_rollout.nodes.runtimes.hosts.shell_lines import ReplacedVariables
from kafka_rollout.nodes.runtimes.hosts.text_files import text_of

_END = 'exec ./kafka-server-start.sh "$@"'


def _is_lost(folder: Path, script: str) -> bool:
    start = folder / "kafka-server-start.sh"
    start.write_text('#!/bin/bash\necho "$KAFKA_OPTS"\n')
    start.chmod(0o755)
    environment = {"PATH": "/usr/bin:/bin", "KAFKA_OPTS": "-Dof=unit"}
    ran = subprocess.run(
        ["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return "-Dof=unit" not in ran.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "script",
    [
        "export KAFKA_OPTS=-Dx\nEND",
        "KAFKA_OPTS=-Dx\nEND",
        'export KAFKA_HEAP_OPTS="-Xmx1g" KAFKA_OPTS="-Dx=\'a;b\' -Dy"; END',
        "export KAFKA_OPTS= # nothing\nEND",
        "unset KAFKA_OPTS; END",
        "KAFKA_OPTS=-Dx exec ./kafka-server-start.sh",
        "env KAFKA_OPTS=-Dx ./kafka-server-start.sh",
        'export KAFKA_OPTS=\nexport KAFKA_OPTS="$KAFKA_OPTS -Dx"\nEND',
        'if test -d /; then\n  echo yes\nfi\nexport KAFKA_OPTS="-Dx ${HOME}"\nEND',
        'export KAFKA_OPTS="-Dx" KAFKA_HEAP_OPTS="$KAFKA_OPTS"\nEND',
    ],
)
def test_a_value_is_lost_if_each_start_sets_the_variable_without_it(tmp_path: Path, script: str) -> None:
    script = script.replace("END", _END)
    assert _is_lost(tmp_path, script)
    assert ReplacedVariables.of([text_of("x", script).lines]).is_replaced("KAFKA_OPTS") is True


@pytest.mark.parametrize(
    "script",
    [
        'export KAFKA_OPTS="$KAFKA_OPTS -Dx"\nEND',
        "KAFKA_OPTS+=' -Dx'\nEND",
        'export KAFKA_OPTS="-Dx ${KAFKA_OPTS:-}"\nEND',
        'BEFORE=$KAFKA_OPTS\nOPTS="-Dx $BEFORE"\nexport KAFKA_OPTS="$OPTS"\nEND',
        'KAFKA_OPTS="$(echo "$KAFKA_OPTS") -Dx"\nEND',
        'if [ -z "$KAFKA_OPTS" ]; then\n  KAFKA_OPTS=-Dx\nfi\nEND',
        'if [ "x$KAFKA_OPTS" = "x" ]; then KAFKA_OPTS=-Dx; fi; END',
        'if test -n "$KAFKA_OPTS"; then\n  :\nelse\n  KAFKA_OPTS=-Dx\nfi\nEND',
        '[ -n "$KAFKA_OPTS" ] || export KAFKA_OPTS=-Dx\nEND',
        'if [ -z "$KAFKA_OPTS" ]; then OWN=true; fi\nif [ "$OWN" = true ]; then KAFKA_OPTS=-Dx; fi\nEND',
        "KAFKA_OPTS=-Dx true\nEND",
        'KAFKA_OPTS="-Dx" KAFKA_HEAP_OPTS=-Xmx1g /bin/true --version >/dev/null; END',
        'echo "Write KAFKA_OPTS=-Dx into the unit"\nEND',
        "echo KAFKA_OPTS=-Dx\nEND",
        "cat >/dev/null <<EOF\nKAFKA_OPTS=-Dx\nEOF\nEND",
        "MY_KAFKA_OPTS=-Dx\nEND",
        "# KAFKA_OPTS=-Dx\nEND",
    ],
)
def test_a_value_stays_if_the_new_one_or_its_condition_has_it(tmp_path: Path, script: str) -> None:
    script = script.replace("END", _END)
    assert not _is_lost(tmp_path, script)
    assert ReplacedVariables.of([text_of("x", script).lines]).is_replaced("KAFKA_OPTS") is False


@pytest.mark.parametrize(
    "script",
    [
        "if test -f /etc/kafka/x; then export KAFKA_OPTS=-Dx; fi",
        'case "$1" in\n  client) KAFKA_OPTS=-Dx;;\nesac',
        "test -f /etc/kafka/x && KAFKA_OPTS=-Dx",
        "set_options() {\n  KAFKA_OPTS=-Dx\n}",
        'KAFKA_OPTS=-Dx "$START" server.properties',
        'KAFKA_OPTS="-Dx\n-Dy"',
        "KAFKA_OPTS=-Dx" + " " * 5000,
    ],
)
def test_what_the_script_finds_can_decide(script: str) -> None:
    assert ReplacedVariables.of([script.split("\n")]).is_replaced("KAFKA_OPTS") is None


def test_a_comment_ends_with_its_line_and_a_command_goes_on_after_a_backslash() -> None:
    script = "# was: \\\npkill java\nkill 1 # and \\\nkill \\\n  2\necho 'a # \\\nb'"
    assert text_of("x", script).lines == ("pkill java", "kill 1", "kill   2", "echo 'a # b'")
