"""The metadata directories of nodes: one contract for those of this machine and those on hosts."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafka_rollout.base.errors import FatalError, RefusedError, TransientError, UserError
from kafka_rollout.metadata_log.changes.install import install, uninstall
from kafka_rollout.metadata_log.changes.places import LocalPlaces, Place, Places
from kafka_rollout.metadata_log.changes.trimmer import trim, undo_trim
from kafka_rollout.metadata_log.disk.folder import open_folder
from kafka_rollout.metadata_log.log_choice import EPOCHS_ABOVE
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.nodes import metadata_places as host_places
from kafka_rollout.nodes.metadata_places import HostPlaces
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.releases.facts import Release
from tests.fakes.dying_files import KilledError
from tests.fakes.local_host import LocalHost, permitted
from tests.paths import FIXTURES

SNAPSHOT = f"{57:020}-{1 + EPOCHS_ABOVE:010}.checkpoint"
CLUSTER = open_folder(FIXTURES / "metadata-log-level-30").cluster_id


@pytest.fixture
def host(tmp_path: Path) -> LocalHost:
    host = LocalHost(tmp_path / "host")
    shutil.copytree(FIXTURES / "metadata-log-level-30", host.data)
    return host


def places_on(host: LocalHost) -> HostPlaces:
    cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(host.node,))
    return HostPlaces(SshServiceRuntime(cluster, host, Release.parse))


@pytest.fixture(params=["local", "host"])
def places(host: LocalHost, request: pytest.FixtureRequest) -> Iterator[Places]:
    yield LocalPlaces(lambda _: host.data) if request.param == "local" else places_on(host)
    if request.param == "host":
        refused = [words for words in host.commands() if not permitted(host.sudoers(), words)]
        assert not refused, "the documented sudoers file has every command"


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    path = tmp_path / SNAPSHOT
    shutil.copy(FIXTURES / "metadata-log-level-30/__cluster_metadata-0" / f"{37:020}-{1:010}.checkpoint", path)
    return path


def whole(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns, path.stat().st_mode)
        for path in folder.rglob("*")
        if path.is_file()
    }


def in_place(places: Places, host: LocalHost, act: Callable[[Place], object]) -> object:
    with places.in_place(host.node) as place:
        return place.shown(act(place))


def test_a_snapshot_is_installed_and_every_byte_comes_back(places: Places, host: LocalHost, snapshot: Path) -> None:
    before = whole(host.data)
    said = in_place(places, host, lambda place: install(place.folder(CLUSTER), snapshot, files=place.files))
    backup = host.data / "__cluster_metadata-0" / f"kafka-rollout-install-{snapshot.stem}"
    assert str(backup) in str(said)
    assert [path.name for path in (host.data / "__cluster_metadata-0").glob("*.*log")] == []
    assert (host.data / "__cluster_metadata-0" / SNAPSHOT).read_bytes() == snapshot.read_bytes()
    assert backup.stat().st_mode & 0o777 == 0o700
    assert set(whole(backup)) == {Path(name).name for name in before if name != "meta.properties"} | {"manifest.json"}
    in_place(places, host, lambda place: uninstall(place.folder(CLUSTER), files=place.files))
    assert whole(host.data) == before


def test_a_trim_cuts_the_log_and_its_undo_restores_it(places: Places, host: LocalHost) -> None:
    before = whole(host.data)
    in_place(places, host, lambda place: trim(place.folder(CLUSTER), files=place.files))
    assert f"__cluster_metadata-0/{37:020}.log" in whole(host.data)
    assert f"__cluster_metadata-0/{0:020}.log" not in whole(host.data)
    in_place(places, host, lambda place: undo_trim(place.folder(CLUSTER), files=place.files))
    kept = [name for name in before if not name.endswith("leader-epoch-checkpoint")]  # written again
    assert {name: whole(host.data)[name] for name in kept} == {name: before[name] for name in kept}
    assert whole(host.data).keys() == before.keys()


def test_a_copy_is_private_and_has_the_files_of_a_start(places: Places, host: LocalHost) -> None:
    with places.copy(host.node) as place:
        folder = place.folder(CLUSTER)
        assert folder.root != host.data
        assert (folder.node_id, len(folder.segments), len(folder.checkpoints)) == (1, 1, 1)
        assert folder.bootstrap is not None
        assert folder.bootstrap.read_bytes() == (host.data / "bootstrap.checkpoint").read_bytes()
        assert not list(folder.log.glob("*index"))
        assert folder.root.parent.stat().st_mode & 0o777 == 0o700
        with pytest.raises(UserError, match=str(host.data)), places.copy(host.node) as other:
            other.folder("another")
    assert not folder.root.exists()


def test_a_directory_without_a_log_is_refused_by_its_path_on_the_host(places: Places, host: LocalHost) -> None:
    shutil.rmtree(host.data / "__cluster_metadata-0")
    with (
        pytest.raises(UserError, match=f"{host.data} holds no metadata log"),
        places.in_place(host.node) as place,
    ):
        place.folder()


def test_the_sizes_are_those_of_the_files_in_the_log(places: Places, host: LocalHost) -> None:
    log = host.data / "__cluster_metadata-0"
    assert places.sizes(host.node) == {path.name: path.stat().st_size for path in log.iterdir()}


def test_the_free_space_is_that_of_the_host(host: LocalHost) -> None:
    host.free = 12_345
    assert places_on(host).free_bytes(host.node) == 12_345


def test_a_running_node_is_not_changed(host: LocalHost, snapshot: Path) -> None:
    host.pid, before = 50, whole(host.data)
    with pytest.raises(UserError, match=r"kafka\.service runs"):
        in_place(places_on(host), host, lambda place: install(place.folder(CLUSTER), snapshot, files=place.files))
    assert whole(host.data) == before

    def starts(place: Place) -> None:
        with place.files.stopped(place.folder()):
            host.pid = 50
            place.files.remove(place.folder().segments[0])

    host.pid = 0
    with pytest.raises(UserError, match=r"kafka\.service runs"):
        in_place(places_on(host), host, starts)
    assert whole(host.data) == before


@pytest.mark.parametrize("state", ["activating", "deactivating", "active", "unknown"])
def test_a_node_that_systemd_starts_again_is_not_changed(host: LocalHost, snapshot: Path, state: str) -> None:
    host.state, before = state, whole(host.data)
    with pytest.raises(UserError, match=r"kafka\.service runs"):
        in_place(places_on(host), host, lambda place: install(place.folder(CLUSTER), snapshot, files=place.files))
    assert whole(host.data) == before


@pytest.mark.parametrize(
    ("group", "is_stopped"),
    [(f"{1 << 22}\n", False), ("", True), (f"{os.getpid()}\n", True)],
    ids=["unseen", "empty", "another"],
)
def test_a_node_whose_process_systemd_has_left_running_is_not_changed(
    host: LocalHost, snapshot: Path, group: str, is_stopped: bool
) -> None:
    """A process that the SSH user cannot see can be Kafka; this one is seen, and is not."""
    host.group, before = group, whole(host.data)

    def act() -> None:
        in_place(places_on(host), host, lambda place: install(place.folder(CLUSTER), snapshot, files=place.files))

    if is_stopped:
        act()
    else:
        with pytest.raises(UserError, match="a process is left in its control group"):
            act()
    assert (whole(host.data) != before) == is_stopped


def test_a_log_that_changed_after_it_was_read_is_read_again(host: LocalHost) -> None:
    def write(place: Place) -> None:
        (host.data / "__cluster_metadata-0" / "quorum-state").write_text("{}")
        trim(place.folder(CLUSTER), files=place.files)

    with pytest.raises(TransientError, match="have changed since they were read"):
        in_place(places_on(host), host, write)


def test_a_full_disk_is_refused_before_the_backup(host: LocalHost, snapshot: Path) -> None:
    host.free, before = 1000, whole(host.data)
    with pytest.raises(RefusedError, match="but only 0 MiB are free"):
        in_place(places_on(host), host, lambda place: install(place.folder(CLUSTER), snapshot, files=place.files))
    assert whole(host.data) == before


def test_the_command_lines_of_an_installation_on_a_host_do_not_depend_on_the_number_of_files(
    host: LocalHost, snapshot: Path
) -> None:
    """No controller is active during a live downgrade's installation, and each command line is a round trip."""
    for number in range(100, 120):
        shutil.copy(snapshot, host.data / "__cluster_metadata-0" / f"{number:020}-{1:010}.checkpoint.deleted")
    with places_on(host).in_place(host.node) as place:
        host.lines.clear()
        install(place.folder(CLUSTER), snapshot, files=place.files)
    # Listed, free space, backup: folder, copies, manifest; snapshot, removals, manifest.
    assert len(host.lines) == 8
    assert max(map(len, host.lines)) < 64 << 10
    host.lines.clear()
    in_place(places_on(host), host, lambda place: uninstall(place.folder(CLUSTER), files=place.files))
    assert len([line for line in host.lines if "/usr/bin/dd if=" not in line]) == 7


def test_a_folder_is_synced_once_after_a_change_and_after_an_interrupted_call(host: LocalHost) -> None:
    with places_on(host).in_place(host.node) as place:
        folder = place.folder(CLUSTER)
        host.lines.clear()
        place.files.sync(folder.log)  # of a call that was ended between a change and the sync
        place.files.sync(folder.log)
        assert len(host.lines) == 1
        place.files.remove(folder.segments[0])
        assert host.lines[1].endswith(f"/usr/bin/sync {host.data}/__cluster_metadata-0 </dev/null")
        place.files.sync(folder.log)
        assert len(host.lines) == 2


def test_many_or_large_files_are_copied_in_several_command_lines(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_places, "_BATCH_BYTES", 1000)
    with places_on(host).in_place(host.node) as place:
        log = place.folder(CLUSTER).log
        sources = []
        for number, size in enumerate([400, 600, 1, 5000, *[1] * 100]):
            sources.append(log / f"{number:020}.snapshot")
            for root in (host.data, place.root):
                (root / log.name / sources[-1].name).write_bytes(bytes(size))
        host.lines.clear()
        place.files.copy_all((source, log / f"copy-{source.name}") for source in sources)
        copied = [line.count("/usr/bin/cp ") for line in host.lines]
        assert copied[:3] == [2, 1, 1]
        assert (sum(copied), len(copied) < 10) == (len(sources), True)
        assert max(map(len, host.lines)) < 64 << 10
        for source in sources:
            for root in (host.data, place.root):
                assert (root / log.name / f"copy-{source.name}").read_bytes() == source.read_bytes()


def test_a_copy_that_differs_from_its_source_gets_no_name(
    host: LocalHost, snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = whole(host.data)
    monkeypatch.setattr(host_places, "sha256_of", lambda path: "0" * 64)
    with pytest.raises(FatalError, match=r"kafka-rollout-install-.*\.kafka-rollout on host kafka-1 differs"):
        in_place(places_on(host), host, lambda place: install(place.folder(CLUSTER), snapshot, files=place.files))
    new = {name for name in whole(host.data) if name not in before}
    assert new
    assert all(name.endswith(".kafka-rollout") for name in new)


@pytest.mark.parametrize("slow", [7, 25])
def test_a_slow_host_continues_a_line_where_it_was_late(host: LocalHost, snapshot: Path, slow: int) -> None:
    """`slow`: seconds of a change. One is longer than the time in which a host starts a change."""
    checks, before = [0], whole(host.data)
    cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(host.node,))

    def fence() -> None:
        checks[0] += 1

    runtime = SshServiceRuntime(cluster, host, Release.parse, monotonic=itertools.count(step=3).__next__, fence=fence)
    host.slow = slow
    in_place(HostPlaces(runtime), host, lambda place: install(place.folder(CLUSTER), snapshot, files=place.files))
    assert host.changes <= checks[0] * (20 // slow + 1), "so many changes start within 20 s after a check"
    assert (host.data / "__cluster_metadata-0" / SNAPSHOT).read_bytes() == snapshot.read_bytes()
    in_place(HostPlaces(runtime), host, lambda place: uninstall(place.folder(CLUSTER), files=place.files))
    assert whole(host.data) == before


@pytest.mark.parametrize("every", [24, pytest.param(1, marks=pytest.mark.full)])
def test_after_a_kill_or_a_cut_at_any_change_a_repeated_call_finishes_and_an_undo_restores(
    host: LocalHost, snapshot: Path, every: int
) -> None:
    def act() -> None:
        in_place(places_on(host), host, lambda place: install(place.folder(CLUSTER), snapshot, files=place.files))

    def contents() -> dict[str, bytes]:
        return {name: found[0] for name, found in whole(host.data).items() if not name.endswith("manifest.json")}

    before = contents()
    act()
    installed, changes = contents(), host.changes
    assert changes > every
    for at in range(0, changes, every):
        for undo in (False, True):
            shutil.rmtree(host.data)
            shutil.copytree(FIXTURES / "metadata-log-level-30", host.data)
            is_cut = (at // every + undo) % 2 == 1
            host.changes, host.left, host.cut = 0, None if is_cut else at, at if is_cut else None
            with pytest.raises((KilledError, TransientError)):
                act()
            host.left = host.cut = None
            if not undo:
                act()
                assert contents() == installed
            elif any((host.data / "__cluster_metadata-0").glob("kafka-rollout-*")):
                in_place(places_on(host), host, lambda place: uninstall(place.folder(CLUSTER), files=place.files))
                assert contents() == before
