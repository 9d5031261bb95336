"""A cluster of local processes."""

from __future__ import annotations

import os
import shutil
import signal
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.local_process import node_processes
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm import java
from tests.class_archives import ClassArchives
from tools.demo.local_cluster import LocalCluster, stop_nodes
from tools.demo.local_nodes import Layout
from tools.faults import isolation
from tools.faults.contents import PROPERTIES
from tools.faults.kinds import Kind
from tools.faults.plan import COMBINED, Fault, Round
from tools.faults.world import End, NotPossibleError, World, keep_segments, shorten_gates

NAME = "faults"
_STOP_S = 60.0
_HEAP = "256m"


class LocalWorld(World):
    """`isolated`: this process is in the namespaces of `isolation`."""

    def __init__(self, folder: Path, of: Round, *, isolated: bool) -> None:
        self.folder, self.isolated = folder, isolated
        settings = Settings.from_environment()
        cache = ReleaseCache.from_settings(settings)
        archives = ClassArchives(cache, settings.cache)
        archives.use()
        for release in (of.older, of.newer):
            archives.record(Release.parse(release))
        layout: Layout = "combined" if of.layout == COMBINED else "separate"
        self.cluster = LocalCluster.create(
            folder,
            NAME,
            Release.parse(of.older),
            cache=cache,
            layout=layout,
            extra_config=PROPERTIES,
            heap=_HEAP,
            start=False,
        )
        self.spec = self.cluster.spec
        shorten_gates(self.cluster.inventory_path)
        self.inventory = self.cluster.inventory_path.parent
        self._java = os.environ["JAVA_HOME"]
        try:
            if isolated:
                self._isolate()
            self.cluster.start()
        except BaseException:
            self.remove()
            raise

    def _isolate(self) -> None:
        homes = [_home(node) for node in self.spec.nodes]
        for home in homes:
            isolation.mount_data(home / "data")
        wrapper = isolation.write_java(self.folder / "java", java.java_binary(), homes)
        os.environ["JAVA_HOME"] = str(wrapper)
        java.java_home.cache_clear()

    def inject(self, fault: Fault, node: NodeSpec) -> End:
        match fault.kind:
            case Kind.KILL_NODE:
                return self._kill(node)
            case Kind.PAUSE_NODE:
                return self._pause(node)
            case Kind.CUT_BROKER:
                targets = [each for each in self.spec.controllers if each.node_id != node.node_id]
                return self._cut([(self._user(node), _port(each)) for each in targets])
            case Kind.PARTITION_CONTROLLER:
                others = [each for each in self.spec.controllers if each.node_id != node.node_id]
                away = [(self._user(node), _port(each)) for each in others]
                return self._cut([*away, *((self._user(each), _port(node)) for each in others)])
            case Kind.FILL_DISK:
                filler = isolation.fill(_home(node) / "data")
                return lambda: _remove(filler)
            case _:
                raise NotPossibleError(f"Local nodes have no {fault.kind}.")

    def has_process(self, node: NodeSpec) -> bool:
        return self.cluster.runtime.process(node).pid is not None

    def start(self, node: NodeSpec) -> None:
        self.cluster.runtime.start(node)

    def restart(self, node: NodeSpec) -> None:
        with suppress(NotPossibleError, ProcessLookupError):
            os.kill(self._pid(node), signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        while self.has_process(node):
            if time.monotonic() > deadline:
                raise NotPossibleError(f"Node {node.node_id} does not stop.")
            time.sleep(0.2)
        self.start(node)

    def keep_logs(self, folder: Path) -> None:
        for node in self.spec.nodes:
            with suppress(OSError):
                shutil.copytree(_home(node) / "logs", folder / node.name, dirs_exist_ok=True)
            keep_segments(_home(node) / "data", folder / node.name)

    def remove(self) -> None:
        for process in node_processes(self.folder).values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
        stop_nodes(self.folder, deadline_s=0.0)
        if self.isolated:
            os.environ["JAVA_HOME"] = self._java
            java.java_home.cache_clear()
            for node in self.spec.nodes:
                isolation.unmount_data(_home(node) / "data")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _pid(self, node: NodeSpec) -> int:
        pid = self.cluster.runtime.process(node).pid
        if pid is None:
            raise NotPossibleError(f"Node {node.node_id} has no process.")
        return pid

    def _kill(self, node: NodeSpec) -> End:
        os.kill(self._pid(node), signal.SIGKILL)
        return lambda: "killed"

    def _pause(self, node: NodeSpec) -> End:
        pid = self._pid(node)
        os.kill(pid, signal.SIGSTOP)

        def end() -> str:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                return "the process had ended"
            return "continued"

        return end

    def _cut(self, cuts: list[tuple[int, str]]) -> End:
        stack = ExitStack()
        stack.enter_context(isolation.discarding(cuts))

        def end() -> str:
            stack.close()
            return "connected again"

        return end

    def _user(self, node: NodeSpec) -> int:
        return isolation.user_of(self.spec.nodes.index(node))


def _home(node: NodeSpec) -> Path:
    return Path(str(node.directory))


def _port(node: NodeSpec) -> str:
    return str(node.controller_address).rpartition(":")[2]


def _remove(filler: Path) -> str:
    filler.unlink(missing_ok=True)
    return "space is free again"
