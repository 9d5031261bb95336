"""A path that a start reads is followed through the link of the release, whatever its kind."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from kafka_rollout.model.file_access import FileAccess
from kafka_rollout.model.host_state import HostState, PlaceState, StartFileKind, StartPath, StartPlace
from kafka_rollout.model.jvm_options import LostOption, NextOptions
from kafka_rollout.model.topology import NodeSpec, PackageSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.start_paths import _USES
from kafka_rollout.nodes.runtimes.start_files import all_start_files, all_start_paths
from kafka_rollout.planning.findings.jvm_options import jvm_option_losses
from kafka_rollout.planning.findings.start_paths import Fate, fate_of, start_path_findings
from kafka_rollout.releases.facts import Release
from tests.architecture.rooms import nodes_of
from tests.paths import ROOT

NEW = Release(4, 3, 1)
HOST = HostState(
    name="kafka-1",
    unit="kafka.service",
    symlink="/opt/kafka",
    folders={},
    releases=frozenset({NEW}),
    symlink_can_switch=True,
    stop_timeout_s=300.0,
)
NOW = StartPlace(path="/opt/kafka_2.13-3.9.1/x", state=PlaceState.FILE)
THEN = StartPlace(path="/opt/kafka_2.13-4.3.1/x", state=PlaceState.MISSING)


@pytest.mark.parametrize("kind", StartFileKind)
def test_no_kind_of_path_gets_lost_without_a_finding(kind: StartFileKind) -> None:
    path = StartPath(kind=kind, path="/opt/kafka/x", now=NOW, after={NEW: THEN})
    of_each_release = kind is StartFileKind.LIBRARIES
    assert (fate_of(path, NEW, HOST) is Fate.STAYS) == (of_each_release or kind is StartFileKind.BARRED)
    hidden = StartPlace(path=THEN.path, state=PlaceState.HIDDEN)
    assert (fate_of(replace(path, after={NEW: hidden}), NEW, HOST) is Fate.STAYS) == of_each_release
    assert fate_of(replace(path, after={}), NEW, HOST) is Fate.UNKNOWN
    assert fate_of(replace(path, after={NEW: NOW}), NEW, HOST) is Fate.STAYS


@pytest.mark.parametrize("kind", StartFileKind)
@pytest.mark.parametrize("then", [NOW, replace(THEN, state=PlaceState.FILE)], ids=["stays", "moves"])
def test_no_kind_of_path_that_the_user_of_the_unit_cannot_use_is_without_a_finding(
    kind: StartFileKind, then: StartPlace
) -> None:
    access = FileAccess(user="kafka", refused="cannot read /x", place="/x")
    node = NodeSpec(node_id=1, name="k", roles=frozenset({Role.BROKER}), service=ServiceSpec(host="k"))
    for one in (access, FileAccess(user="kafka", unknown="why")):
        path = StartPath(kind=kind, path="/opt/kafka/x", now=NOW, after={NEW: replace(then, access=one)})
        found = [str(finding) for finding in start_path_findings(node, replace(HOST, start_paths=(path,)), [NEW])]
        assert [one for one in found if "kafka" in one and ("cannot read /x" in one or "why" in one)]


@pytest.mark.parametrize("kind", StartFileKind)
@pytest.mark.parametrize("is_edited", [True, None])
def test_no_kind_of_path_that_a_package_replaces_is_without_a_finding(
    kind: StartFileKind, is_edited: bool | None
) -> None:
    package = PackageSpec(install=("/usr/bin/apt-get", "install", "kafka={version}"), check=())
    service = ServiceSpec(host="k", package=package)
    node = NodeSpec(node_id=1, name="k", roles=frozenset({Role.BROKER}), service=service)
    path = StartPath(kind=kind, path="/opt/kafka/x", now=NOW, after={NEW: NOW}, is_edited=is_edited)
    for releases in ([NEW], []):
        every = start_path_findings(node, replace(HOST, start_paths=(path,)), releases)
        (found,) = (one for one in every if one.code != "START-PATH-PRESENT")
        assert found.code == ("START-PATH-SWITCHED" if is_edited else "START-PATH-UNKNOWN")
        assert "/opt/kafka/x" in found.sentence


def test_the_user_of_the_unit_is_asked_in_one_place() -> None:
    """Each way of a kind is asked there, and a release is installed only if its folder was asked."""
    assert _USES.keys() == {*StartFileKind}
    callers = {
        path.relative_to(ROOT / "plugins/kafka_rollout").as_posix()
        for path in (ROOT / "plugins/kafka_rollout").rglob("*.py")
        for node in nodes_of(path.read_text())
        if isinstance(node, ast.Name) and node.id in ("read_access", "PlaceState", "ReleaseFolder")
    }
    assert callers == {
        "model/host_state.py",
        "model/start_conditions.py",
        "nodes/runtimes/hosts/closed_paths.py",
        "nodes/runtimes/hosts/library_folders.py",
        "nodes/runtimes/hosts/link_users.py",  # without read_access: it is about processes of others that run
        "nodes/runtimes/hosts/package_paths.py",  # without read_access: the package sets the modes of its files
        "nodes/runtimes/hosts/release_folders.py",
        "nodes/runtimes/hosts/service.py",
        "nodes/runtimes/hosts/start_commands.py",  # without read_access: whether what a command needs exists
        "nodes/runtimes/hosts/start_paths.py",
        "nodes/runtimes/hosts/start_writes.py",
        "nodes/runtimes/hosts/unit_state.py",
        "nodes/runtimes/hosts/user_access.py",
        "planning/findings/hosts.py",
        "planning/findings/start_paths.py",
    }, "what reads where a path leads asks read_access too"


CONFIG = {
    "listeners": "SASL_SSL://:9092",
    "ssl.keystore.location": "/a/keystore",
    "log.dirs": "/a/data",
    "config.providers.x.param.file": "/a/provider",
}
ARGUMENTS = (
    "-Dlog4j.configuration=file:/a/log4j",
    "-Djava.security.properties=/a/security",
    "-Djava.security.auth.login.config=/a/jaas",
    "-javaagent:/a/agent.jar=1:/a/agent.yml",
    "-agentpath:/a/agent.so",
    "-cp",
    "/a/plugin.jar:/a/plugins/*",
    "kafka.Kafka",
    "/a/server.properties",
)


def test_what_is_compared_with_the_start_of_the_process_is_followed_too() -> None:
    followed = {path for _, path, _ in all_start_paths(CONFIG, ARGUMENTS, ())}
    assert {path.removesuffix("/meta.properties") for _, path in all_start_files(CONFIG, ARGUMENTS)} <= followed
    assert {path for path in followed if not path.startswith("/a/")} == set()
    assert {"/a/provider", "/a/server.properties", "/a/agent.yml"} <= followed


def test_a_runtime_that_switches_a_link_reads_all_paths() -> None:
    """`all_start_files` has the files whose dates are compared; where they lead is the question of another function."""
    callers = {
        path.relative_to(ROOT / "plugins/kafka_rollout").as_posix()
        for path in (ROOT / "plugins/kafka_rollout").rglob("*.py")
        for node in nodes_of(path.read_text())
        if isinstance(node, ast.Name) and node.id in ("all_start_files", "all_start_paths")
    }
    assert callers == {
        "nodes/runtimes/start_files.py",
        "nodes/runtimes/local_process.py",  # it chooses the folder of the jars itself, and has no link
        "nodes/runtimes/hosts/unit_state.py",
        "nodes/runtimes/hosts/start_paths.py",
    }


def test_an_option_of_the_process_is_evidence_of_the_next_start_in_one_place_only() -> None:
    """What a process has can be of a script that the switch takes away, or of an environment that was changed."""
    readers, callers = set(), []
    for path in (ROOT / "plugins/kafka_rollout").rglob("*.py"):
        for node in nodes_of(path.read_text()):
            if isinstance(node, ast.Name) and node.id in ("read_unit_options", "ARGUMENTS"):
                readers.add(path.relative_to(ROOT / "plugins/kafka_rollout").as_posix())
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "jvm_arguments"
            ):
                callers.append(len(node.args))
    assert readers == {"nodes/runtimes/hosts/unit_state.py"}
    assert callers == [2] * len(callers), "for one release"
    assert len(callers) == 2


@pytest.mark.parametrize("field", ["lost", "gone", "unclear"])
def test_no_option_that_the_next_start_may_not_have_is_without_a_finding(field: str) -> None:
    options = NextOptions(**{field: (LostOption(option="-Dx=y"),)})
    node = NodeSpec(node_id=1, name="k", roles=frozenset({Role.BROKER}), service=ServiceSpec(host="k"))
    for release in (NEW, None):
        host = replace(HOST, options={release: options})
        assert len(list(jvm_option_losses(node, host, [NEW] if release else []))) == 1
    assert options.arguments == ()
