"""SELinux types of releases on a host, and their findings: a real shell, and programs that print what RHEL prints."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from kafka_rollout.base.findings import Finding
from kafka_rollout.model.host_state import HostState
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.security_labels import FILES, read_labels
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.planning.findings.security_labels import security_label_findings
from kafka_rollout.releases.facts import Release
from tests.unit.nodes.runtimes.test_service import NODE

OLD, NEW = Release(3, 9, 1), Release(4, 3, 1)
HOST = HostState(
    name="h1",
    unit="kafka.service",
    symlink="/opt/kafka",
    folders={release: f"/opt/kafka_2.13-{release}" for release in (OLD, NEW)},
    releases=frozenset({OLD, NEW}),
    symlink_can_switch=True,
    stop_timeout_s=300.0,
)


@dataclass
class Host:
    folder: Path
    kinds: dict[str, str]
    """Folder → the type of its files."""
    enforced: str = "1"

    def run(self, _: object, command: str) -> Done:
        lines = "\n".join(f"*{home}/*) echo system_u:object_r:{kind}:s0 $file;;" for home, kind in self.kinds.items())
        programs = {
            "cat": f"echo {self.enforced}" if self.enforced else "exit 1",
            "stat": f'shift 3\nfor file do\ncase $file in\n{lines}\n*) echo "? $file";;\nesac\ndone',
        }
        for name, text in programs.items():
            (self.folder / name).write_text(f"#!/bin/sh\n{text}\n")
            (self.folder / name).chmod(0o755)
        path = {"PATH": f"{self.folder}:{os.environ['PATH']}"}
        ran = subprocess.run(["sh", "-c", command], env=path, capture_output=True, check=False, timeout=20)
        return Done(ran.returncode, ran.stdout, ran.stderr.decode())

    def findings(self, releases: tuple[Release, ...] = (OLD, NEW)) -> list[Finding]:
        labels = read_labels(cast(HostCommands, self), NODE, HOST.folders)
        return list(security_label_findings(NODE, replace(HOST, labels=labels), releases))


@pytest.mark.parametrize(
    ("kind", "severity"),
    [
        ("usr_t", []),
        ("admin_home_t", ["blocker"]),
        ("user_home_t", ["blocker"]),
        ("user_tmp_t", ["blocker"]),
        ("unlabeled_t", ["blocker"]),
        ("bin_t", ["warning"]),
    ],
)
def test_another_type_than_that_of_the_running_release_is_found(tmp_path: Path, kind: str, severity: list[str]) -> None:
    host = Host(tmp_path, {"/opt/kafka": "usr_t", f"/opt/kafka_2.13-{OLD}": "usr_t", f"/opt/kafka_2.13-{NEW}": kind})
    found = host.findings()
    assert [one.severity.value for one in found] == severity
    for one in found:
        assert (one.code, f"{FILES[0]} has {kind} (now usr_t)" in one.sentence) == ("SECURITY-LABEL-DIFFERS", True)
        assert f"restorecon -RFv /opt/kafka_2.13-{NEW}" in one.remedy
    host.kinds["/opt/kafka"] = kind
    assert host.findings((NEW,)) == [], "it runs with this type"


@pytest.mark.parametrize("enforced", ["0", ""])
def test_a_host_without_selinux_has_none(tmp_path: Path, enforced: str) -> None:
    host = Host(tmp_path, {"/opt/kafka": "usr_t", f"/opt/kafka_2.13-{NEW}": "user_home_t"}, enforced)
    assert host.findings() == []


def test_a_release_that_is_not_there_yet_has_none(tmp_path: Path) -> None:
    assert Host(tmp_path, {"/opt/kafka": "usr_t"}).findings() == []
