"""What a node reads at its start, seen without its keys: dates of files, names in jars, options of its own Java."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from zipfile import ZipFile

import pytest

from kafka_rollout.base.errors import FatalError, UserError
from kafka_rollout.model.starts import PluginClass
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.files_at_start import find_jvm_problems, find_node_classes, read_named_files
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.nodes.runtimes.hosts.unit_state import UnitState, parse_unit
from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jvm.java import harmless_options, java_binary, refusal_of, refused_options, refused_sizes
from tests.unit.nodes.runtimes.test_local_process import NoJars

NEW = Release(4, 3, 1)
CMS = "-XX:+UseConcMarkSweepGC"
RUNNING = "LoadState=loaded\nActiveState=active\nSubState=running\nMainPID=50\nExecMainPID=50\nNRestarts=0\n"
REFUSED = (
    "OpenJDK 64-Bit Server VM warning: Options -Xverify:none were deprecated\n"
    "Unrecognized VM option 'UseConcMarkSweepGC'\n"
    "Error: Could not create the Java Virtual Machine.\n"
    "Error: A fatal exception has occurred. Program will exit.\n"
)


@dataclass
class ShellOfThisMachine:
    """Commands of a host. `answers`: begin of a command → its output; the others run here. `ran`: all of them."""

    answers: Mapping[str, Done] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)

    @property
    def shell(self) -> ShellOfThisMachine:
        return self

    def run(self, node: NodeSpec | str, command: str | Sequence[str], **options: object) -> Done:
        words = command if isinstance(command, str) else " ".join(command)
        self.ran.append(words)
        for begin, done in self.answers.items():
            if begin in words:
                return done
        text = str(options.get("text") or "").encode()
        ran = subprocess.run(["sh", "-c", words], input=text, capture_output=True, cwd="/", check=False, timeout=60)
        return Done(ran.returncode, ran.stdout, ran.stderr.decode())

    def sudo(self, node: NodeSpec, right: Any, **values: object) -> Done:
        return self.run(node, right.command(**values))

    act = sudo

    def expect(self, node: NodeSpec, right: Any, done: Done) -> Done:
        assert done.code == 0
        return done


def _commands(shell: ShellOfThisMachine) -> HostCommands:
    return cast(HostCommands, shell)


def _node(folder: Path) -> NodeSpec:
    service = ServiceSpec(host="kafka-1", installation=f"{folder}/kafka/{{release}}", symlink=f"{folder}/current")
    return NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)


def _unit() -> UnitState:
    return parse_unit(RUNNING)


def _out(text: str, code: int = 0, err: str = "") -> Done:
    return Done(code, text.encode(), err)


def test_dates_of_files_on_a_host_are_read_without_their_content(tmp_path: Path) -> None:
    there = tmp_path / "node p12"
    there.write_text("a key")
    link = tmp_path / "link.p12"
    link.symlink_to(there)
    shell = ShellOfThisMachine()
    files = {"a": str(there), "b": str(link), "c": str(tmp_path / "missing"), "d": "relative.p12"}
    one, linked, missing, relative = read_named_files(_commands(shell), _node(tmp_path), files)
    assert one.changed_at == int(there.stat().st_ctime)
    assert linked.changed_at == max(int(there.stat().st_ctime), int(link.lstat().st_ctime))
    assert (missing.is_absent, missing.changed_at) == (True, None)
    assert "relative" in relative.problem
    assert all(found.readable_at is None for found in (one, linked, missing, relative))
    assert not any(word in line for line in shell.ran for word in ("cat ", "sudo"))
    denied = ShellOfThisMachine({"stat": _out("0 stat: cannot statx '/x/y': Permission denied\n")})
    (found,) = read_named_files(_commands(denied), _node(tmp_path), {"a": "/x/y"})
    assert (found.problem, found.is_absent) == ("Permission denied", False)


def test_a_link_above_a_file_and_a_folder_that_was_renamed_date_it(tmp_path: Path) -> None:
    old, new = tmp_path / "2026-11", tmp_path / "2026-12"
    for folder in (old, new):
        folder.mkdir()
        (folder / "ks.p12").write_text("a key")
    current, tls = tmp_path / "current", tmp_path / "tls"
    tls.mkdir()
    (tls / "ks.p12").write_text("a key")

    def date(path: Path) -> float | None:
        (found,) = read_named_files(_commands(ShellOfThisMachine()), _node(tmp_path), {"a": str(path)})
        return found.changed_at

    before = [date(old / "ks.p12"), date(tls / "ks.p12")]
    time.sleep(1.1)
    current.symlink_to("2026-11")
    assert date(current / "ks.p12") == int(current.lstat().st_ctime) > (before[0] or 0)
    tls.rename(tmp_path / "moved")
    assert (date(tmp_path / "moved/ks.p12") or 0) > (before[1] or 0)
    assert date(old / "ks.p12") == before[0]


def test_names_of_classes_are_found_in_the_jars_of_the_next_start(tmp_path: Path) -> None:
    new, old, plugins, tiered = (tmp_path / name for name in ("kafka/4.3.1/libs", "kafka/3.9.1/libs", "plugins", "rsm"))
    for folder in (new, old, plugins, tiered):
        folder.mkdir(parents=True)
    own, left, outside = old / "kafka_2.13-3.9.1.jar", old / "left.jar", plugins / "outside.jar"
    for jar, name in (
        (own, "kafka/Kafka"),
        (left, "com/example/Left"),
        (outside, "com/example/Outside"),
        (new / "copied.jar", "com/example/Copied"),
        (tiered / "tiered.jar", "com/example/Tiered"),
    ):
        with ZipFile(jar, "w") as archive:
            archive.writestr(f"{name}.class", b"class")
    os.mkfifo(new / "pipe.jar")
    opened = "".join(f"lr-x------ 1 kafka kafka 64 Nov 28 10:00 9 -> {jar}\n" for jar in (own, left, outside))
    shell = ShellOfThisMachine({"/proc/50/fd": _out(opened)})
    names = ("Left", "Outside", "Copied", "Missing", "Out")
    classes = [PluginClass(setting="metric.reporters", name=f"com.example.{name}") for name in names]
    classes.append(PluginClass(setting="rsm", name="com.example.Tiered", class_path=f"{tiered}/*:relative/*"))
    places = find_node_classes(_commands(shell), _node(tmp_path), _unit(), NEW, classes)
    assert places.folder == str(new)
    assert places.jars == {
        "com.example.Outside": (str(outside),),
        "com.example.Copied": (str(new / "copied.jar"),),
        "com.example.Tiered": (str(tiered / "tiered.jar"),),
    }
    assert places.left_behind == {"com.example.Left": (str(left),)}
    assert places.unknown == ""
    later = find_node_classes(_commands(shell), _node(tmp_path), _unit(), Release(4, 4, 0), classes)
    assert "has no folder" in later.unknown
    refusing = ShellOfThisMachine({"/proc/50/fd": _out("", 1, "sudo: a password is required")})
    unseen = find_node_classes(_commands(refusing), _node(tmp_path), _unit(), NEW, classes)
    assert unseen.unknown == "the jars that the process has loaded cannot be listed"
    assert "com.example.Copied" in unseen.jars


def test_options_are_tried_with_the_nodes_own_java_if_only_root_can_change_it(tmp_path: Path) -> None:
    java = "/usr/lib/jvm/java-17/bin/java"
    home = {
        "readlink -e": _out("81a4/0/root//usr/lib/jvm/java-17/release\n41ed/0/root//\n"),
        "cat /usr/lib/jvm/java-17/release": _out('JAVA_VERSION="17.0.1"\n'),
        "readlink /proc/50/exe": _out(f"exe 0 {java}\njava 0 {java}\n"),
    }
    options = _out(
        "show ExecStart={ path=/x ; argv[]=/opt/kafka/bin/kafka-server-start.sh /x ; ignore_errors=no ; }\n"
        f"env KAFKA_GC_LOG_OPTS={CMS} LIMIT=-1\narg {java}\narg -Xms64g\narg -XX:+UseG1GC\narg kafka.Kafka\n"
    )
    answers = {**home, "systemctl show --property=Environment": options, "find -H": _out("")}
    refused = {f"{java} {CMS} -version": _out("", 1, REFUSED), f"{java} -XX:+UseG1GC -version": _out("")}
    shell = ShellOfThisMachine({**answers, **refused})
    assert find_jvm_problems(_commands(shell), _node(tmp_path), _unit(), (NEW,)) == (
        "Unrecognized VM option 'UseConcMarkSweepGC'",
    )
    assert sum("readlink /proc/50/exe" in line for line in shell.ran) == 1  # what was checked is what runs
    unsafe = ShellOfThisMachine({**answers, **refused, "find -H": _out("/usr/lib/jvm/java-17/lib\n")})
    with pytest.raises(UserError, match=r"can be changed by another user than root"):
        find_jvm_problems(_commands(unsafe), _node(tmp_path), _unit(), (NEW,))
    assert not any("-version" in line for line in unsafe.ran)


@pytest.mark.parametrize("by", ["folder", "link", "jar"])
def test_a_class_in_an_entry_of_the_class_path_that_the_next_start_does_not_have_is_left_behind(
    tmp_path: Path, by: str
) -> None:
    libs, plugins = tmp_path / "kafka/4.3.1/libs", tmp_path / "plugins"
    for folder in (libs, plugins, tmp_path / "kafka/3.9.1/libs", tmp_path / "kafka/3.9.1/bin"):
        folder.mkdir(parents=True)
    (tmp_path / "current").symlink_to("kafka/3.9.1")
    (tmp_path / "linked").symlink_to("plugins")
    for name in ("kafka-server-start.sh", "kafka-run-class.sh"):
        (tmp_path / "kafka/3.9.1/bin" / name).write_text('exec java -cp "$CLASSPATH" kafka.Kafka\n')
    kafka, jar = tmp_path / "kafka/3.9.1/libs/kafka_2.13-3.9.1.jar", plugins / "authorizer.jar"
    with ZipFile(jar, "w") as archive:
        archive.writestr("com/example/Authorizer.class", b"class")
    opened = "".join(f"lr-x------ 1 kafka kafka 64 Nov 28 10:00 9 -> {path}\n" for path in (kafka, jar))
    entry = {"folder": f"{plugins}/*", "link": f"{tmp_path}/linked/*", "jar": str(jar)}[by]
    process = f"arg java\narg -cp\narg {entry}:{kafka}\narg kafka.Kafka\n"
    start = f"show ExecStart={{ argv[]={tmp_path}/current/bin/kafka-server-start.sh /x ; ignore_errors=no ; }}\n"
    one = PluginClass(setting="authorizer.class.name", name="com.example.Authorizer")
    for environment, found in (("", "left"), (f"env CLASSPATH={entry}\n", "stays")):
        unit = _out(environment + start + process)
        shell = ShellOfThisMachine({"/proc/50/fd": _out(opened), "systemctl show --property=Environment": unit})
        places = find_node_classes(_commands(shell), _node(tmp_path), _unit(), NEW, [one])
        seen = {"left": places.left_behind, "stays": places.jars}
        assert seen[found] == {one.name: (str(jar),)}
        assert {**seen["left"], **seen["stays"]} == seen[found]


def test_only_options_without_an_effect_are_tried() -> None:
    command = (
        "java -Xmx4g -Xms4g -server -XX:+AlwaysPreTouch -XX:MaxGCPauseMillis=20 -Xlog:gc*:file=/var/log/gc.log "
        "-javaagent:/opt/agent.jar=7071 -Dcom.sun.management.jmxremote.port=9999 --add-opens java.base/java.nio=ALL "
        "-XX:StartFlightRecording=filename=/tmp/x -XX:+PrintGCDateStamps -d64 -cp /opt/libs/* kafka.Kafka /etc/x"
    )
    assert harmless_options(command.split()) == [
        *("-Xmx4g", "-server", "-XX:MaxGCPauseMillis=20", "-Xlog:gc*:stdout"),
        *("--add-opens", "java.base/java.nio=ALL", "-XX:+PrintGCDateStamps", "-d64"),
    ]
    assert refusal_of(REFUSED) == "Unrecognized VM option 'UseConcMarkSweepGC'"


_SIZES = [
    ("-Xms6g -Xmx4g", "-Xms6g is more than -Xmx4g"),
    ("-Xmx8m -XX:InitialHeapSize=9m", "-XX:InitialHeapSize=9m is more than -Xmx8m"),
    ("-XX:MinHeapSize=2g -Xmx1g", "-XX:MinHeapSize=2g is more than -Xmx1g"),
    ("-Xms2g -XX:InitialHeapSize=1g", "-Xms2g is more than -XX:InitialHeapSize=1g"),
    ("-Xms4gb", "Invalid size: -Xms4gb"),
    ("-Xmn1gb", "Invalid size: -Xmn1gb"),
    ("-XX:NewSize=1gb", "Invalid size: -XX:NewSize=1gb"),
    ("-Xlog:gc:file=FILE:time:filecount=10,filesize=100X", "Invalid -Xlog option"),
    ("-Xms1g -Xmx64m -Xmx2g", ""),
    ("-Xms0x1000000 -XX:MaxHeapSize=65536k", ""),
    ("-Xms128M -Xmx128m -Xmn32m", ""),
    ('-Xlog:gc*:file="FILE":time,tags:filecount=10,filesize=100M', ""),
    ("-Xlog:gc:FILE::filesize=1048576", ""),
]


@pytest.mark.parametrize(("options", "why"), _SIZES)
@pytest.mark.jvm
def test_sizes_are_refused_as_java_refuses_them(tmp_path: Path, options: str, why: str) -> None:
    words = options.replace("FILE", str(tmp_path / "gc.log")).split()
    assert refused_sizes(["java", *words, "kafka.Kafka", "-Xms1z"]).startswith(why)
    ran = subprocess.run([str(java_binary()), *words, "-version"], capture_output=True, check=False)
    assert (ran.returncode == 0) == (why == "")


@pytest.mark.parametrize(("options", "why"), [("-Xlog:gcc:file=/x:time", "-Xlog"), ("-Xlog:gc:/x:foo", "-Xlog")])
@pytest.mark.jvm
def test_what_a_java_is_to_log_is_tried_without_the_file(options: str, why: str) -> None:
    assert why in refused_options(java_binary(), [options])
    assert refused_options(java_binary(), ["-Xlog:gc*:file=/nowhere/gc.log:time,tags:filecount=10,filesize=1M"]) == ""


def test_the_arguments_of_kafka_are_no_options_of_its_java() -> None:
    """kafka-server-start.sh passes `--override` on to Kafka's main class."""
    command = "/usr/bin/java @/etc/kafka/options -Xmx1g -cp /libs/* -d64 kafka.Kafka /etc/x --override node.id=1 -x"
    assert harmless_options(command.split()) == ["-Xmx1g", "-d64"]


@pytest.fixture
def runtime(tmp_path: Path) -> LocalProcessRuntime:
    node = NodeSpec(node_id=1, name="node-1", roles=frozenset({Role.BROKER}), directory=str(tmp_path))
    return LocalProcessRuntime(cluster=ClusterSpec(name="orders", nodes=(node,)), cache=NoJars())


@pytest.mark.jvm
def test_options_that_the_java_of_a_local_node_refuses_are_named(runtime: LocalProcessRuntime, tmp_path: Path) -> None:
    (node,) = runtime.cluster.nodes
    assert runtime.jvm_problems(node, (NEW,)) == ()
    (tmp_path / "jvm.options").write_text(f"-Xmx300m\n{CMS}\n")
    (problem,) = runtime.jvm_problems(node, (NEW,))
    assert "UseConcMarkSweepGC" in problem
    assert java_binary().exists()


def test_files_of_a_local_node_are_below_its_home(runtime: LocalProcessRuntime, tmp_path: Path) -> None:
    (node,) = runtime.cluster.nodes
    (tmp_path / "node.p12").write_text("a key")
    one, missing = runtime.named_files(node, {"a": "node.p12", "b": "/nowhere/node.p12"})
    assert (one.readable_at, one.is_absent) == (str(tmp_path / "node.p12"), False)
    assert (missing.readable_at, missing.is_absent) == ("/nowhere/node.p12", True)


def test_a_plugin_of_a_local_node_with_its_own_class_path(runtime: LocalProcessRuntime, tmp_path: Path) -> None:
    (node,) = runtime.cluster.nodes
    (tmp_path / "rsm").mkdir()
    with ZipFile(tmp_path / "rsm" / "tiered.jar", "w") as archive:
        archive.writestr("com/example/Tiered.class", b"class")
    classes = [PluginClass(setting="rsm", name=f"com.example.{name}", class_path="rsm/*") for name in ("Tiered", "Not")]
    assert runtime.find_classes(node, NEW, classes).jars == {"com.example.Tiered": (str(tmp_path / "rsm/tiered.jar"),)}


def test_a_java_that_is_not_there_is_not_asked_again(tmp_path: Path) -> None:
    with pytest.raises(FatalError, match="does not run"):
        refused_options(tmp_path / "java", ["-Xmx1g"])
