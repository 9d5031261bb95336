"""Nodes as local processes: what the roll trusts when it stops, replaces and starts one."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest

from kafka_rollout.base.errors import FatalError, TransientError, UserError
from kafka_rollout.base.internal_topics import METADATA_LOG
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.model.log_directories import data_directories, metadata_directory
from kafka_rollout.model.plan import ConfigChange
from kafka_rollout.model.state import CheckpointFile
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.metrics import NodeMetricsReader
from kafka_rollout.nodes.runtimes.local_process import LocalProcessRuntime
from kafka_rollout.planning.findings.log_folders import log_folder_findings
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.integration.conftest import MakeCluster
from tests.waiting import wait_until
from tools.demo.local_cluster import LocalCluster, stop_nodes

pytestmark = pytest.mark.integration

OLD, NEW = Release(3, 9, 1), Release(4, 3, 1)


@pytest.fixture(scope="module")
def shared(make_shared_cluster: MakeCluster) -> LocalCluster:
    """One combined node on 3.9.1 that writes snapshots each second."""
    quick_snapshots = {"metadata.log.max.snapshot.interval.ms": "1000"}
    return make_shared_cluster("3.9.1", layout="combined", size=1, extra_config=quick_snapshots)


@pytest.fixture
def single(shared: LocalCluster) -> LocalCluster:
    """The shared node, ready on 3.9.1, whatever the test before left."""
    (node,) = shared.spec.nodes
    if shared.runtime.process(node).pid is None:
        shared.runtime.install(node, OLD)
        shared.start()
    shared.wait_until_ready()
    return shared


def home(node: NodeSpec) -> Path:
    return Path(str(node.directory))


def wait_for_release(node: NodeSpec, release: Release, *, within_s: float = 180) -> None:
    deadline = time.monotonic() + within_s
    while True:
        with suppress(TransientError):
            if NodeMetricsReader().read(node).release == release:
                return
        assert time.monotonic() < deadline, f"{node.name} does not run {release}"
        time.sleep(0.2)


@pytest.mark.full
def test_one_node_of_three_is_replaced_by_the_new_release_and_back(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("3.9.1", layout="combined")
    runtime, node = cluster.runtime, cluster.spec.node(2)
    first = (home(node) / "server.properties").read_text()
    lines = {"log.retention.hours": "24", "num.recovery.threads.per.data.dir": "2"}
    changes = [
        ConfigChange(node_id=2, release=release, key=key, value=value if release == NEW else None, reason="test")
        for release in (NEW, OLD)
        for key, value in lines.items()
    ]
    for release in (NEW, OLD):
        runtime.stop(node, deadline_s=180)
        assert runtime.process(node).pid is None
        runtime.install(node, release, changes)
        text = (home(node) / "server.properties").read_text()
        runtime.install(node, release, changes)
        assert (home(node) / "server.properties").read_text() == text, "installing twice is installing once"
        assert runtime.config(node).get("log.retention.hours") == ("24" if release == NEW else None)
        assert runtime.config(node).get("num.recovery.threads.per.data.dir") == ("2" if release == NEW else None)
        runtime.start(node)
        wait_for_release(node, release)
        assert runtime.process(node).installed == release
        assert any("Kafka Server started" in line or "INFO" in line for line in runtime.log_tail(node))
    assert (home(node) / "server.properties").read_text() == first, "the rollback restores the configuration"
    assert (home(node) / "server.properties.3.9.1").read_text() == first
    assert [start.release for start in runtime.starts(node)] == [OLD, NEW, OLD]
    assert len(runtime.starts(cluster.spec.node(1))) == 1
    cluster.wait_until_ready()


def test_a_start_killed_before_its_record_is_found_and_recorded_once(single: LocalCluster) -> None:
    """The parent dies between spawn and record: the next start finds the process instead of starting another."""
    runtime, node = single.runtime, single.spec.node(1)
    runtime.stop(node, deadline_s=180)
    earlier = len(runtime.starts(node))
    record = home(node) / "starts.jsonl"
    before = record.read_text()
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tools.demo import local_cluster\n"
        "from kafka_rollout.clusters.inventory import load_cluster\n"
        "from kafka_rollout.releases.jars.cache import ReleaseCache\n"
        "from kafka_rollout.nodes.runtimes import local_process\n"
        "from kafka_rollout.base.system.settings import Settings\n"
        "local_process._record_start = lambda *_: os.kill(os.getpid(), 9)\n"
        "settings = Settings.from_environment()\n"
        "cluster = load_cluster(Path(sys.argv[1]))\n"
        "cache = ReleaseCache.from_settings(settings)\n"
        "local_process.LocalProcessRuntime(cluster, cache).start(cluster.node(1))\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, str(single.inventory_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    pid = runtime.process(node).pid
    assert pid is not None
    assert record.read_text() == before
    runtime.start(node)
    runtime.start(node)
    assert runtime.process(node).pid == pid
    assert [start.pid for start in runtime.starts(node)].count(pid) == 1
    assert len(runtime.starts(node)) == earlier + 1


def test_of_two_starts_at_once_one_starts(single: LocalCluster) -> None:
    runtime, node = single.runtime, single.spec.node(1)
    runtime.stop(node, deadline_s=180)
    earlier = len(runtime.starts(node))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: runtime.start(node), range(4)))
    config = str(home(node) / "server.properties")
    assert len([p for p in psutil.process_iter(["cmdline"]) if config in (p.info["cmdline"] or [])]) == 1
    assert len(runtime.starts(node)) == earlier + 1


@pytest.mark.parametrize("junk", ["__cluster_metadata-0.bak/", "__cluster_metadata-0/dump.log"])
def test_a_node_runs_with_names_that_its_next_start_refuses(single: LocalCluster, junk: str) -> None:
    runtime, node = single.runtime, single.spec.node(1)
    config = runtime.config(node)

    def refused() -> list[str]:
        seen = runtime.log_folders(node, config)
        return [
            one.sentence for one in log_folder_findings(node, config, seen, [runtime.process(node).installed or OLD])
        ]

    runtime.start(node)
    single.wait_until_ready()
    assert refused() == []
    directory = metadata_directory(config) if junk.startswith(f"{METADATA_LOG}/") else data_directories(config)[0]
    path = home(node) / str(directory) / junk
    path.mkdir() if junk.endswith("/") else path.touch()
    try:
        assert runtime.process(node).pid is not None, "it takes no notice"
        (sentence,) = refused()
        assert junk.rstrip("/") in sentence
        runtime.stop(node, deadline_s=180)
        runtime.start(node)
        wait_until(lambda: runtime.process(node).pid is None, 60, said="the end of the process")
    finally:
        path.rmdir() if junk.endswith("/") else path.unlink()
    runtime.start(node)
    single.wait_until_ready()


def test_a_forced_stop_kills_a_process_that_exceeds_its_deadline(single: LocalCluster) -> None:
    runtime, node = single.runtime, single.spec.node(1)
    pid = runtime.process(node).pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)  # as a hanging controlled shutdown: SIGTERM is not answered
    with pytest.raises(FatalError, match="still shutting down after 1 s"):
        runtime.stop(node, deadline_s=1)
    assert runtime.process(node).pid == pid, "nothing is killed without force=True"
    began = time.monotonic()
    runtime.stop(node, deadline_s=2, force=True)
    assert 2 <= time.monotonic() - began < 60
    assert runtime.process(node).pid is None
    runtime.stop(node, deadline_s=2)  # a stopped node is not an error


def test_nothing_is_installed_under_a_running_node(single: LocalCluster) -> None:
    node = single.spec.node(1)
    with pytest.raises(FatalError, match=r"node-1 still runs as process \d+"):
        single.runtime.install(node, NEW)
    assert single.runtime.process(node).installed == OLD


def test_a_node_gets_no_credentials_and_listens_on_loopback_only(
    single: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime, node = single.runtime, single.spec.node(1)
    runtime.stop(node, deadline_s=180)
    monkeypatch.setenv("AIRFLOW_CONN_ORDERS", "kafka://me:hunter2@host")
    runtime.start(node)
    wait_for_release(node, OLD)
    pid = runtime.process(node).pid
    assert pid is not None
    process = psutil.Process(pid)
    assert "hunter2" not in str(process.environ())
    assert "hunter2" not in " ".join(process.cmdline())
    listening = {c.laddr.ip for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}
    assert process.pid == os.getsid(pid), "a session of its own: Ctrl-C does not reach it"


def test_snapshots_are_listed_and_copied_readable_by_their_owner_alone(single: LocalCluster, tmp_path: Path) -> None:
    runtime, node = single.runtime, single.spec.node(1)
    found: tuple[CheckpointFile, ...] = ()
    deadline = time.monotonic() + 180
    while not found and time.monotonic() < deadline:
        time.sleep(0.5)
        found = runtime.checkpoints(node)
    assert found
    assert all(checkpoint.end_offset > 0 and checkpoint.size > 0 for checkpoint in found)
    copy = tmp_path / "copy.checkpoint"
    runtime.copy_checkpoint(found[-1], copy)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert copy.stat().st_size == found[-1].size


def test_a_node_that_does_not_start_leaves_its_reason_in_the_log(single: LocalCluster) -> None:
    runtime, node = single.runtime, single.spec.node(1)
    runtime.stop(node, deadline_s=180)
    runtime.install(
        node, OLD, [ConfigChange(node_id=1, release=OLD, key="log.segment.bytes", value="1", reason="test")]
    )
    runtime.start(node)
    deadline = time.monotonic() + 180
    while runtime.process(node).pid is not None:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert re.search(r"ConfigException.*segment\.bytes", "\n".join(runtime.log_tail(node, lines=200)))


def test_two_clusters_created_at_once_share_no_port_and_stop_separately(make_cluster: MakeCluster) -> None:
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda name: make_cluster("3.9.1", name=name, layout="combined", size=1), ("one", "two"))
    ports = [
        urlsplit(url if "//" in url else f"//{url}").port
        for cluster in (one, two)
        for node in cluster.spec.nodes
        for url in (node.broker_address, node.controller_address, node.prometheus_url, node.jolokia_url)
        if url
    ]
    assert len(ports) == len(set(ports)) == 8
    assert stop_nodes(one.folder, deadline_s=0) == 1
    assert one.runtime.process(one.spec.node(1)).pid is None
    assert two.runtime.process(two.spec.node(1)).pid is not None


def test_a_node_without_home_or_release_is_refused(tmp_path: Path, release_cache: ReleaseCache) -> None:
    from kafka_rollout.clusters.inventory import get_cluster
    from tools.demo.folder import PROJECT_ROOT

    spec = get_cluster("local", replace(Settings.from_environment(), clusters=PROJECT_ROOT / "include" / "clusters"))
    runtime = LocalProcessRuntime(spec, release_cache)
    homeless = replace(spec.node(1), directory=str(tmp_path / "none"))
    with pytest.raises(UserError, match="does not exist"):
        runtime.stop(homeless, deadline_s=1)
    empty = replace(spec.node(1), directory=str(tmp_path))
    with pytest.raises(FatalError, match="No release is installed"):
        runtime.start(empty)
    with pytest.raises(UserError, match=r"server\.properties cannot be read"):
        runtime.install(empty, OLD)
