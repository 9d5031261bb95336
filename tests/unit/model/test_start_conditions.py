"""Which commands of a start can end it in another way than the last one, and which remove data."""

from __future__ import annotations

import re

import pytest

from kafka_rollout.model.host_state import PlaceState
from kafka_rollout.model.start_conditions import find_conditions, find_removals, is_strict, of_script, of_start, of_unit

STARTS = re.compile(r"kafka-server-start\.sh")
START = "exec /opt/kafka/bin/kafka-server-start.sh /etc/kafka/server.properties"
OWNERS = ("passwd kafka", "group kafka", "passwd root", "group root")
CHANGED = ("/etc/pki/new.p12",)


def state_of(path: str) -> PlaceState:
    """Return what is there: nothing at `gone`, a file if the name has a dot, else a folder."""
    if "gone" in path:
        return PlaceState.MISSING
    return PlaceState.FILE if "." in path else PlaceState.FOLDER


@pytest.mark.parametrize(
    "command",
    [
        "/bin/chown -R root:root /srv/gone",
        "/bin/chown -R nobody2 /srv/data",
        "/bin/chgrp lost /var/log/kafka",
        "/bin/chmod 640 /etc/gone/ks.p12",
        "/usr/bin/setfacl -m u:kafka:r /etc/gone",
        "/usr/bin/install -m 640 /etc/pki/gone.p12 /etc/kafka/ks.p12",
        "/usr/bin/install -m 640 /etc/pki/new.p12 /etc/kafka/ks.p12",
        "/usr/bin/install -d -o lost /run/kafka",
        "/bin/cp /etc/pki/gone.p12 /etc/kafka/",
        "/bin/mkdir /run/x/kd",
        "/bin/mkdir -p relative",
        "/bin/ln -s /a/b /c/d",
        "/bin/sleep 100000",
        "/bin/touch /gone/x",
        "/usr/bin/test -f /etc/gone",
        "/usr/local/bin/fetch-keystore",
        "/bin/sh -c mkdir -p A && chown root:root A /tmp/nothere",
        "/bin/sh -c mkdir -p /run/kafka && chown $(id -u kafka) /run/kafka",
        "/bin/sh -c until nc -z ldap 636; do sleep 1; done",
        "/bin/sh -c fetch > /etc/kafka/ks.p12",
        '/bin/rm -rf "$CACHE"',
    ],
)
def test_a_command_whose_needs_are_not_there_or_unknown_is_shown(command: str) -> None:
    assert find_conditions(of_unit([(command, False)]), state_of, OWNERS, CHANGED) == (command,)
    if "new.p12" not in command:
        assert find_conditions(of_unit([(command, True)]), state_of, OWNERS, CHANGED) == ()


@pytest.mark.parametrize(
    "command",
    [
        "/bin/mkdir -p /run/gone",
        "/bin/mkdir /run/gone",
        "/bin/chown -R kafka:kafka /var/log/kafka",
        "/bin/chown 997:997 /var/log/kafka",
        "/usr/bin/install -d -m 0750 -o kafka -g kafka /run/gone",
        "/usr/bin/install -m 640 /etc/pki/host.p12 /etc/kafka/ks.p12",
        "/bin/ln -sfn /a/b /c/d",
        "/bin/sleep 5",
        "/bin/rm -f /run/kafka.pid",
        "/usr/bin/test -f /etc/kafka/server.properties",
        "/bin/sh -c mkdir -p /run/gone && chown kafka /run/gone",
        "/bin/sh -c fetch || true",
        "/bin/sh -c echo 1 > /run/kafka/id",
        "/opt/kafka/bin/kafka-storage.sh info -c /etc/kafka/x",
    ],
)
def test_a_command_that_cannot_fail_or_has_what_it_needs_is_none(command: str) -> None:
    assert find_conditions(of_unit([(command, False)]), state_of, OWNERS, CHANGED) == ()


def of_wrapper(text: str) -> tuple[str, ...]:
    lines = text.split("\n")
    found = of_script("/w", lines, lines, STARTS, is_strict=is_strict("", lines))
    return tuple(one.removeprefix("/w: ") for one in find_conditions(found, state_of, OWNERS, CHANGED))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("set -euo pipefail\nfetch keystore /etc/kafka/ks.p12", "fetch keystore /etc/kafka/ks.p12"),
        ("set -o errexit\nTOKEN=$(curl -s https://vault)", "TOKEN=$(curl -s https://vault)"),
        ("set -e\ncurl x | jq .", "curl x | jq ."),
        ("fetch &&", f"fetch && {START}"),
        ("fetch || exit 1", "fetch || exit 1"),
        ("if [ ! -f /var/lib/kafka/ready ]; then exit 1; fi", "if [ ! -f /var/lib/kafka/ready ]; then exit 1; fi"),
        ("if fetch; then", "if fetch; then"),
        ("while ! nc -z ldap 636; do sleep 1; done", "while ! nc -z ldap 636; do sleep 1; done"),
    ],
)
def test_a_command_of_a_wrapper_that_can_end_the_start_is_shown(text: str, shown: str) -> None:
    assert of_wrapper(f"{text}\n{START}") == (shown,)


@pytest.mark.parametrize(
    "text",
    [
        "fetch",
        "set -e\nfetch || true",
        "set -e\nmkdir -p /var/log/gone\nchown kafka /var/log/gone",
        "set -e\nDIR=$(cd $(dirname $0) && pwd)\nexport HEAP=1g\n. /etc/default/kafka.env",
        'set -e\nlog() { echo "$1"; }\nlog starting\nexec >>/var/log/k.log 2>&1',
        "set -e\nif [ -f /etc/x.env ]; then\n. /etc/x.env\nfi",
        "if [ $# -lt 1 ];\nthen\necho usage\nexit 1\nfi",
        'if [ "$MODE" = a ]; then',
    ],
)
def test_a_usual_wrapper_has_none(text: str) -> None:
    assert of_wrapper(f"{text}\n{START}\nfetch || exit 1") == ()


@pytest.mark.parametrize(
    ("command", "is_shown"),
    [
        (f"/bin/bash -c fetch && {START}", True),
        (f"/bin/bash -ec fetch; {START}", True),
        (f"/bin/bash -c fetch; {START}", False),
        (f"/bin/bash -c ulimit -n 100000; {START}", False),
    ],
)
def test_a_command_of_the_shell_that_starts_kafka_is_one(command: str, is_shown: bool) -> None:
    assert bool(find_conditions(of_start(command, STARTS), state_of, OWNERS, CHANGED)) is is_shown


@pytest.mark.parametrize(
    ("command", "removes"),
    [
        ("/bin/rm -rf /data/k", True),
        ("/bin/rm -rf /data", True),
        ("/bin/rm -rf /data/k/*", True),
        ("/bin/rm -rf /dat*", True),
        ("/bin/rm -rf /data/k/topic-0", True),
        ("/bin/rm -rf /mnt/link", True),
        ("/bin/rm -f /data/k/meta.properties", True),
        ("/usr/bin/find /data/k -type f -delete", True),
        ("/bin/sh -c sleep 1; rm -rf /data/k/*", True),
        ("/bin/rm -f /data/k/.lock", False),
        ("/bin/rm -rf /data/k/lost+found", False),
        ("/bin/rm -rf /tmp/kafka-*", False),
        ("/bin/rm -f /data", False),
        ("/usr/bin/find /data/k -name x", False),
    ],
)
def test_a_command_that_removes_a_log_directory_is_found_also_if_its_errors_are_ignored(
    command: str, removes: bool
) -> None:
    found = find_removals(
        of_unit([(command, True)]), ["/data/k"], lambda path: {"/mnt/link": "/data/k"}.get(path, path)
    )
    assert found == (((command, "/data/k"),) if removes else ())
