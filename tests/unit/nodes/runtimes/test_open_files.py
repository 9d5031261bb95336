"""The release of a process that has several jars of kafka.Kafka open."""

from __future__ import annotations

import os
import subprocess

import pytest

from kafka_rollout.nodes.runtimes.hosts.open_files import WHY_HIDDEN, read_open_files, why_hidden
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from tests.fakes.host import FakeHost
from tests.unit.nodes.runtimes.test_service import NODE, runtime_on

PLUGIN = "/opt/tiered-storage/libs/kafka_2.13-4.3.1.jar"
LIBS = "/opt/kafka_2.13-3.9.1/libs"
OWN = f"{LIBS}/kafka_2.13-3.9.1.jar"


@pytest.mark.parametrize(
    ("class_path", "opened", "version"),
    [
        (f"/opt/kafka/bin/../libs/x.jar:{LIBS}/../libs/kafka_2.13-3.9.1.jar", (PLUGIN, OWN), "3.9.1"),
        ("/opt/kafka/libs/*", (PLUGIN, OWN), "3.9.1"),
        ("/opt/kafka/libs/*", (PLUGIN, f"{OWN} (deleted)"), "3.9.1"),
        ("libs/*", (PLUGIN, OWN), ""),
        (f"{PLUGIN}:{OWN}", (PLUGIN, OWN), ""),
        ("libs/*", (OWN, OWN), "3.9.1"),
        ("libs/*", (), ""),
    ],
)
def test_of_several_versions_that_of_the_class_path_counts(
    class_path: str, opened: tuple[str, ...], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = runtime_on(FakeHost())
    listed = "".join(
        f"lr-x------ 1 kafka kafka 64 Nov 30 14:00 {fd} -> {path}\n" for fd, path in enumerate(opened, 135)
    )
    monkeypatch.setattr(type(runtime), "sudo", lambda *_, **__: Done(0, listed.encode(), ""))

    def run(_: object, __: object, command: object, **___: object) -> Done:
        shown = f"{LIBS}\n" if "readlink" in command else f"arg java\narg -cp\narg {class_path}\narg kafka.Kafka\n"  # type: ignore[operator]
        return Done(0, shown.encode(), "")

    monkeypatch.setattr(type(runtime), "run", run)
    assert read_open_files(runtime, NODE, 50).version == version


def test_a_process_that_has_ended_is_in_no_namespace_of_its_own() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    for pid in (ended.pid, os.getpid()):
        done = subprocess.run(["sh", "-c", WHY_HIDDEN.format(pid=pid)], capture_output=True, text=True, check=False)
        assert "namespace" not in why_hidden(done.stdout.splitlines())
