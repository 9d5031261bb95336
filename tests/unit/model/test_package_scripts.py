"""Lines of a package's scripts that can close a path to the user of a unit: all that are not known to leave it open."""

from __future__ import annotations

import pytest

from kafka_rollout.model.file_access import Use
from kafka_rollout.model.package_scripts import PackageScript, find_closing_lines

USES = {
    "/var/lib/kafka/data": Use.CREATE,
    "/var/log/kafka": Use.CREATE,
    "/etc/kafka/server.properties": Use.READ,
    "/etc/kafka/ssl/key.p12": Use.READ,
}


def closing(*lines: str, user: str = "kafka") -> tuple[str, ...]:
    found = find_closing_lines([PackageScript("postinst", lines)], USES, user)
    return tuple(one.removeprefix("postinst: ") for one in found)


@pytest.mark.parametrize(
    "line",
    [
        "chown cp-kafka:confluent /var/log/kafka",
        "chmod u+wx,g+r,o= /var/lib/kafka",
        "chmod 750 /var/lib/kafka",
        'chown -R cp-kafka:confluent "/var/lib/kafka/"',
        "if test -d /etc/kafka; then chmod 0700 /etc/kafka/*; fi",
        "chgrp -R confluent /var/lib",
        "setfacl -b /var/log/kafka",
        "find /var/lib/kafka -type d -exec chmod 750 {} +",
        "find /etc/kafka -name '*.p12' | xargs chmod 600",
        "install -d -o cp-kafka -g confluent -m 750 /var/log/kafka",
        "dpkg-statoverride --update --add root confluent 0750 /var/lib/kafka",
        "chown cp-kafka $LOG_DIR",
        "chmod 750 `readlink /opt/logs`",
        'chown "$owner" /var/log/kafka',
        "usermod -G confluent kafka",
        "chmod -x /var/log/kafka",
        "chmod 755 /var/log/kafka",
        "chmod -R 644 /etc/kafka",
        "posix.chmod('/var/lib/kafka', '0700')",
        "drwxr-x--- cp-kafka:confluent /var/lib/kafka",
        "drwxr-xr-x root:root /var/log/kafka",
    ],
)
def test_a_line_that_can_close_a_path_is_found(line: str) -> None:
    assert closing(line) == (line,)


@pytest.mark.parametrize(
    "line",
    [
        "chown kafka:kafka /var/log/kafka",
        "chown -R kafka /var/lib/kafka",
        "chown cp-kafka:confluent /var/lib/zookeeper /usr/share/java",
        "chmod u+w,g+rwx /var/log/kafka",
        "chmod 755 /var/lib/kafka",
        "chmod 644 /etc/kafka/server.properties",
        "dpkg-statoverride --list /var/log/kafka",
        "usermod -a -G ssl-cert kafka",
        "usermod -s /bin/false cp-kafka",
        "echo installed",
        "drwxr-xr-x root:root /etc/kafka",
        "drwxr-x--- kafka:kafka /var/lib/kafka",
    ],
)
def test_a_line_that_leaves_each_path_open_is_not(line: str) -> None:
    assert closing(line) == ()


def test_what_a_script_gives_to_the_user_first_keeps_its_owner() -> None:
    own = ("chown -R cp-kafka:confluent /var/lib/kafka", "chmod 750 /var/lib/kafka", "chmod g+r,o= /var/lib/kafka/data")
    assert closing(*own, user="cp-kafka") == ()
    assert closing(*own) == own
    late = ("chown cp-kafka /var/lib/kafka", "chmod 750 /var/lib/kafka/data", "chmod 640 /var/lib/kafka")
    assert closing(*late, user="cp-kafka") == late[1:], "another folder, and one that its owner cannot enter"


def test_variables_have_the_literals_of_the_script() -> None:
    loop = ("for dir in /var/log/kafka /opt/x; do", "chmod 700 $dir", "done")
    assert closing(*loop) == loop[1:2]
    assert closing("DIR=/opt/x", 'chown root "$DIR"') == ()
    for other in ("DIR=$(pwd)", ". /etc/default/kafka", 'DIR="$1"'):
        assert closing("DIR=/opt/x", other, "chown root $DIR") == ("chown root $DIR",), other
