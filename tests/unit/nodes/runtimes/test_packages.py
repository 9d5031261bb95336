"""Kafka as a package of the distribution, on a host in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kafka_rollout.base.errors import FatalError, RefusedError, TransientError
from kafka_rollout.model.host_state import Installation, PackageProblem
from kafka_rollout.model.plan import ConfigChange
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, PackageSpec, Role, ServiceSpec
from kafka_rollout.nodes.runtimes.hosts import installing as package_module
from kafka_rollout.nodes.runtimes.hosts import service as service_module
from kafka_rollout.nodes.runtimes.hosts.installing import installed_release
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.reported import identify_release
from tests.fakes.clock import FakeClock
from tests.fakes.host import CONFIGURATION, FakeHost
from tests.paths import INCLUDE

R391, R421, R431 = Release(3, 9, 1), Release(4, 2, 1), Release(4, 3, 1)
CHANGE = ConfigChange(node_id=1, release=R431, key="num.io.threads", value="9", reason="a test")
KEPT, CHANGED = "node.id=1\nlog.dirs=/data\n", "num.io.threads=9"
PACKAGE = PackageSpec(
    install=("/usr/bin/apt-get", "install", "kafka={version}"),
    download=("/usr/bin/apt-get", "install", "--download-only", "--reinstall", "kafka={version}"),
)


def node_of(**package: Any) -> NodeSpec:
    service = ServiceSpec(host="kafka-1", package=replace(PACKAGE, **package))
    return NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)


NODE = node_of()
LOAD = "apt-get install --download-only --reinstall"


def host_with(**given: Any) -> FakeHost:
    return FakeHost(**{"package": ["4.2.1"], **given})


def runtime_on(host: FakeHost, apache_releases: dict[str, str] | None = None) -> SshServiceRuntime:
    clock, known = FakeClock(), apache_releases or {}
    cluster = ClusterSpec(name="far", runtime="ssh_service", nodes=(NODE,), apache_releases=known)
    catalogue = load_catalogue(INCLUDE)
    return SshServiceRuntime(
        cluster,
        host,
        lambda version: identify_release(version, catalogue, known).release,
        sleep=clock.sleep,
        monotonic=clock.monotonic,
    )


@pytest.mark.parametrize("script", ["", "starts", "replaces"])
def test_a_package_is_installed_while_the_unit_is_masked_and_the_run_starts_it(script: str) -> None:
    host = host_with(script=script)
    runtime = runtime_on(host)
    runtime.stop(NODE, deadline_s=180)
    runtime.install(NODE, R431, [CHANGE])
    assert host.pid == 0
    runtime.start(NODE)
    process = runtime.process(NODE)
    assert (process.pid, process.running, process.installed) == (50 + host.started, R431, R431)
    assert [(start.release, start.pid) for start in runtime.starts(NODE)] == [(R431, process.pid)]
    done = [one for one in host.history if one.startswith(("apt-get", "systemctl mask", "systemctl unmask"))]
    assert [one.split()[:2] for one in done] == [["systemctl", "mask"], ["apt-get", "install"], ["systemctl", "unmask"]]
    assert CHANGED in host.files[CONFIGURATION]
    assert host.files[f"{CONFIGURATION}.4.2.1"] == KEPT
    runtime.stop(NODE, deadline_s=180)
    runtime.install(NODE, R421, [replace(CHANGE, release=R421, value=None)])
    assert (host.package, host.files[CONFIGURATION]) == (["4.2.1"], KEPT)


@pytest.mark.parametrize(
    "cut", ["systemctl stop", "cp", "tee", "mv", "systemctl mask", "apt-get", "systemctl unmask", "systemctl start"]
)
@pytest.mark.parametrize("changes", [[CHANGE], []])
def test_a_call_that_ends_anywhere_is_finished_by_a_repetition(cut: str, changes: list[ConfigChange]) -> None:
    host = host_with(cut_after=cut)
    runtime = runtime_on(host)

    def roll() -> None:
        if not host.started:
            runtime.stop(NODE, deadline_s=180)
            runtime.install(NODE, R431, changes)
        runtime.start(NODE)

    with pytest.raises(TransientError, match="cannot be reached"):
        roll()
    roll()
    assert runtime.process(NODE).running == R431
    assert [start.release for start in runtime.starts(NODE)] == [R431]
    assert (host.started, host.masked) == (1, False)
    assert (CHANGED in host.files[CONFIGURATION]) == bool(changes)
    assert host.files[f"{CONFIGURATION}.4.2.1"] == KEPT


@pytest.mark.parametrize("changes", [[CHANGE], []])
def test_a_configuration_that_a_package_replaced_is_not_used_after_a_kill(changes: list[ConfigChange]) -> None:
    host = host_with(pid=0, active="inactive", sub="dead", script="replaces", cut_after="apt-get")
    runtime = runtime_on(host)
    with pytest.raises(TransientError, match="cannot be reached"):
        runtime.install(NODE, R431, changes)
    for release in (R431, R421):
        with pytest.raises(RefusedError, match="is not the file that the run kept before it installed the package"):
            runtime.install(NODE, release, changes)
    host.files[CONFIGURATION] = host.files.pop(f"{CONFIGURATION}.kafka-rollout")
    runtime.install(NODE, R431, changes)
    assert host.files[CONFIGURATION].startswith(KEPT)
    assert (CHANGED in host.files[CONFIGURATION]) == bool(changes)


@pytest.mark.parametrize("cut", ["apt-get", "systemctl unmask", "systemctl stop", "mv"])
@pytest.mark.parametrize("script", ["starts", "starts, replaces"])
def test_a_process_that_a_package_started_does_not_count_before_its_installation_is_finished(
    cut: str, script: str
) -> None:
    host = host_with(pid=0, active="inactive", sub="dead", script=script, cut_after=cut)
    runtime = runtime_on(host)
    with pytest.raises(TransientError, match="cannot be reached"):
        runtime.install(NODE, R431)
    process = runtime.process(NODE)
    is_up = cut in {"apt-get", "systemctl unmask"}
    assert (process.pid is not None, process.is_unfinished) == (is_up, is_up)
    host.script = ""
    runtime.stop(NODE, deadline_s=180)
    if "replaces" in script and cut != "mv":  # the operator decides
        with pytest.raises(RefusedError, match="is not the file that the run kept"):
            runtime.install(NODE, R431)
        host.files[CONFIGURATION] = host.files.pop(f"{CONFIGURATION}.kafka-rollout")
    runtime.install(NODE, R431)
    runtime.start(NODE)
    assert (runtime.process(NODE).is_unfinished, host.files[CONFIGURATION]) == (False, KEPT)


HELD = Installation(held=("kafka",))


def test_a_held_package_is_held_again_before_its_unit_can_start() -> None:
    host = host_with(held={"kafka", "other"})
    runtime = runtime_on(host)
    assert runtime.installation(NODE) == HELD
    runtime.stop(NODE, deadline_s=180)
    runtime.install(NODE, R431, held=runtime.installation(NODE).held)
    assert host.held == {"kafka", "other"}
    assert host.history.index("apt-mark hold kafka") < host.history.index("systemctl unmask --runtime kafka.service")
    free = host_with(pid=0, active="inactive", sub="dead")
    runtime_on(free).install(NODE, R431, held=runtime_on(free).installation(NODE).held)
    assert free.held == set(), "nobody held it"


def test_the_lock_of_another_package_manager_does_not_keep_a_node_down() -> None:
    """`apt-mark hold` does not wait for it, and the package is installed."""
    locked = Done(100, b"", "E: Could not get lock /var/lib/dpkg/lock")
    host = host_with(pid=0, active="inactive", sub="dead", answers={"apt-mark": lambda _: locked})
    assert runtime_on(host).install(NODE, R431, held=HELD.held) == (
        "kafka is not held on host kafka-1 as before: E: Could not get lock /var/lib/dpkg/lock. Run `apt-mark hold "
        "kafka` there as root."
    )
    assert (host.package, host.masked) == (["4.3.1"], False)
    refused = host_with(pid=0, active="inactive", sub="dead", refused={"apt-mark"})
    with pytest.raises(RefusedError):
        runtime_on(refused).install(NODE, R431, held=HELD.held)


@pytest.mark.parametrize("cut", ["systemctl mask", "apt-get", "apt-mark", "systemctl unmask"])
def test_a_hold_outlives_a_kill_at_any_point(cut: str) -> None:
    host = host_with(pid=0, active="inactive", sub="dead", held={"kafka"}, cut_after=cut)
    before = runtime_on(host).installation(NODE)  # recorded before the stop
    with pytest.raises(TransientError, match="cannot be reached"):
        runtime_on(host).install(NODE, R431, held=before.held)
    runtime_on(host).install(NODE, R431, held=before.held)
    assert host.held == {"kafka"}


def test_a_hold_outlives_a_failed_installation() -> None:
    host = host_with(pid=0, active="inactive", sub="dead", script="fails")
    with pytest.raises(FatalError, match="was not installed"):
        runtime_on(host).install(NODE, R431, held=HELD.held)
    assert (host.held, host.masked) == ({"kafka"}, True)


def test_the_state_that_was_installed_counts_and_not_the_exit_code_of_another_package() -> None:
    """apt-get ends with 100 because of what dpkg could not configure before, and Kafka is installed."""
    host = host_with(pid=0, active="inactive", sub="dead", script="foreign fails", held={"kafka"})
    for release in (R431, R421):
        host.unfinished = []
        warning = runtime_on(host).install(NODE, release, held=HELD.held)
        assert warning == (
            f"Kafka {release} is installed on host kafka-1, and its package manager has ended with exit code 100: E: "
            "Sub-process /usr/bin/dpkg returned an error code (1). Unfinished packages: linux-image-6.1 "
            "(half-configured)."
        )
        assert (host.package, host.masked, host.held) == ([str(release)], False, {"kafka"})
    runtime_on(host).start(NODE)
    assert host.started == 1


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"script": "fails"}, r"kafka 4\.3\.1 is half-configured\."),
        (
            {"script": "foreign fails", "changed_files": "missing     /usr/share/java/kafka/a.jar\n"},
            r"/usr/share/java/kafka/a\.jar is missing or not that of the package\.",
        ),
    ],
)
def test_an_installation_that_left_no_whole_package_has_failed(given: dict[str, Any], why: str) -> None:
    host = host_with(pid=0, active="inactive", sub="dead", **given)
    with pytest.raises(FatalError, match=rf"was not installed on host kafka-1: E: .+\. {why} The node is stopped, and"):
        runtime_on(host).install(NODE, R431)
    assert host.masked


def test_a_script_that_installs_is_known_by_its_exit_code_alone() -> None:
    node = node_of(install=("/usr/local/bin/apt-get-kafka", "install", "{version}"), download=())
    host = host_with(pid=0, active="inactive", sub="dead", answers={"apt-get-kafka": lambda _: Done(1, b"", "failed")})
    with pytest.raises(FatalError, match="does not show what /usr/local/bin/apt-get-kafka has installed"):
        runtime_on(host).install(node, R431)


def test_a_package_that_dpkg_left_unfinished_is_found_before_the_stop() -> None:
    host = host_with(unfinished=["iF |linux-image-6.1", "iHR|agent:amd64"])
    state = runtime_on(host).host(NODE, [R431])
    assert state.unfinished == ("linux-image-6.1 (half-configured)", "agent:amd64 (must be installed again)")
    assert runtime_on(host).host(NODE, [R421], restarts=True).unfinished == ()
    assert runtime_on(host).host(node_of(**DNF), [R431]).unfinished == ()
    unknown = runtime_on(host_with(unfinished=None)).host(NODE, [R431]).unknown
    assert any("the states of its packages" in what for what in unknown)


def test_a_package_that_is_not_held_is_seen_and_an_unknown_hold_is_unknown() -> None:
    assert runtime_on(host_with()).host(NODE, [R431]).unheld == ("kafka",)
    assert runtime_on(host_with(held={"kafka"})).host(NODE, [R431]).unheld == ()
    broken = host_with(held=None)
    state = runtime_on(broken).host(NODE, [R431])
    assert state.unheld == ()
    assert any("which packages are held" in what for what in state.unknown)
    with pytest.raises(TransientError, match="does not report which packages are held"):
        runtime_on(broken).installation(NODE)


def test_an_interrupted_package_manager_is_repaired_only_if_the_operator_permits_it() -> None:
    down: dict[str, Any] = {"pid": 0, "active": "inactive", "sub": "dead", "script": "is interrupted"}
    host = host_with(**down)
    with pytest.raises(RefusedError) as refused:
        runtime_on(host).install(NODE, R431)
    assert refused.value.remedy.startswith("Run `dpkg --configure -a` there as root")
    assert host.masked, "a script of the package can still run"
    assert runtime_on(host).process(NODE).pid is None
    host = host_with(**down)
    runtime_on(host).install(node_of(repair=("/usr/bin/dpkg", "--force-confold", "--configure", "-a")), R431)
    assert (host.package, host.masked) == (["4.3.1"], False)


DNF: dict[str, Any] = {"install": ("/usr/bin/dnf", "install", "-y", "kafka-{version}"), "download": ()}
DUPLICATES = ("/usr/bin/dnf", "remove", "-y", "--duplicates")


def test_an_interrupted_dnf_that_calls_both_releases_installed_is_repaired() -> None:
    """rpm installs the new package before it erases the old one, so each `dnf install` succeeds and does nothing."""
    down: dict[str, Any] = {"pid": 0, "active": "inactive", "sub": "dead", "script": "leaves both"}
    host = host_with(**down)
    runtime_on(host).install(node_of(**DNF, repair=DUPLICATES), R431)
    assert (host.package, host.masked) == (["4.3.1"], False)
    host = host_with(**down)
    with pytest.raises(FatalError, match="of several") as failed:
        runtime_on(host).install(node_of(**DNF), R431)
    assert failed.value.remedy.startswith(
        "If `rpm -q` shows two versions, an installation was interrupted: run `/usr/bin/dnf remove -y --duplicates` "
    )
    host.script = ""
    runtime_on(host).install(node_of(**DNF), R431)
    assert host.package == ["4.3.1"]


def test_a_node_with_the_jars_of_another_release_or_of_several_is_not_started() -> None:
    host = host_with(pid=0, active="inactive", sub="dead")
    with pytest.raises(FatalError, match=r"the jars in /usr/share/java/kafka are those of 4\.2\.1"):
        runtime_on(host).install(node_of(versions={"4.3.1": "4.2.1"}), R431)
    host.script = "mixes"
    with pytest.raises(FatalError, match=r"of no known release, or of several\. The node is"):
        runtime_on(host).install(NODE, R431)
    with pytest.raises(FatalError, match="are those of no known release, or of several"):
        runtime_on(host).start(NODE)
    assert host.started == 0
    assert "the release of the jars in /usr/share/java/kafka" in runtime_on(host).host(NODE, [R431]).unknown


def test_a_plan_asks_for_packages_without_the_lock() -> None:
    def refuse() -> None:
        raise RefusedError("This process does not hold the lock.", remedy="Report this.")

    runtime = runtime_on(host_with(available=("4.2.1", "4.3.1")))
    runtime.fence = refuse
    assert runtime.host(NODE, [R431]).unavailable == {}
    with pytest.raises(RefusedError, match="does not hold the lock"):
        runtime.stop(NODE, deadline_s=180)


def test_the_packages_of_the_release_and_of_a_rollback_must_be_available() -> None:
    host = host_with(available=("4.3.1",))
    state = runtime_on(host).host(NODE, [R431])
    assert state.unavailable == {
        R421: PackageProblem(
            sentence="The package of Kafka 4.2.1 is not available on host kafka-1: `/usr/bin/apt-get install "
            "--download-only --reinstall kafka=4.2.1`: E: Version '4.2.1' for 'kafka' was not found."
        )
    }
    assert (state.releases, state.brought, state.symlink_can_switch) == ({R431}, {R431}, True)
    assert runtime_on(host).host(NODE, [R421]).unavailable == {}, "a restart installs nothing"
    unlisted = runtime_on(host_with()).host(node_of(versions={"4.2.1": "4.2.1"}), [R431])
    (problem,) = unlisted.unavailable.values()
    assert problem.sentence == "The inventory has no version of the package for Kafka 4.3.1."


@pytest.mark.parametrize(
    ("path", "reason", "is_unknown"),
    [
        ("/srv/debs/kafka_1.deb", "No such file or directory", False),
        ("/srv/debs/kafka_1.deb", "Permission denied", True),
        ("/usr/local/sbin/install", "No such file or directory", True),
    ],
)
def test_the_file_of_an_old_version_can_be_absent_on_a_host(path: str, reason: str, is_unknown: bool) -> None:
    node = node_of(
        install=("/usr/local/sbin/install", "/srv/debs/kafka_{version}.deb"), versions={"4.3.1": "2", "3.9.1": "1"}
    )
    state = runtime_on(host_with(unreadable={path: reason})).host(node, [R431])
    assert (f"owner and mode of {path}" in state.unknown) == is_unknown


def test_a_vendors_package_must_be_evaluated_as_the_release_for_which_it_is_installed() -> None:
    node = node_of(versions={"4.2.1": "8.2.1-1", "3.9.1": "7.9.1-1"})
    host = host_with(package=["8.2.1-ccs"], loaded="8.2.1-ccs", available=("8.2.1-1", "7.9.1-1"))
    known = {"8.2.1-ccs": "4.2.1"}
    state = runtime_on(host, known).host(node, [R391])
    assert state.unavailable[R391].sentence == ("The package 7.9.1-1 of Kafka 3.9.1 would be evaluated as 3.9.0.")
    assert set(state.unavailable) == {R391}
    assert runtime_on(host, {**known, "7.9.1-ccs": "3.9.1"}).host(node, [R391]).unavailable == {}


def test_both_packages_are_downloaded_before_the_stop() -> None:
    host = host_with()
    runtime_on(host).bring(NODE, R431, back=R421)
    assert host.history == [f"{LOAD} kafka={release}" for release in ("4.3.1", "4.2.1")]
    assert (host.pid, host.package) == (50, ["4.2.1"])


def test_a_package_that_left_the_repository_is_refused_before_the_stop_also_in_a_rollback() -> None:
    host = host_with(available=())
    with pytest.raises(RefusedError, match=r"The package of Kafka 4\.3\.1 is not available on host kafka-1"):
        runtime_on(host).bring(NODE, R431)
    with pytest.raises(RefusedError, match=r"The package of Kafka 4\.2\.1 is not available on host kafka-1"):
        runtime_on(host_with(available=("4.3.1",))).bring(NODE, R431, back=R421)
    assert (host.pid, host.history) == (50, [f"{LOAD} kafka=4.3.1"])
    runtime_on(host).bring(NODE, R421, back=R421)  # a restart installs nothing
    runtime_on(host_with(available=("4.3.1",))).bring(NODE, R431)  # a rollback does not return


def test_the_space_of_the_package_manager_is_asked_for_an_installation() -> None:
    host = host_with()
    assert runtime_on(host).host(NODE, [R431]).package_bytes == 900_000_000
    host.space = ""
    assert "the free space of /var/lib and /var/cache" in runtime_on(host).host(NODE, [R431]).unknown
    assert runtime_on(host).host(NODE, [R421], restarts=True).unknown == ()


def test_the_repository_is_asked_once_for_a_stop() -> None:
    host = host_with()
    runtime = runtime_on(host)

    def bring() -> int:
        host.history.clear()
        runtime.bring(NODE, R431, back=R421)
        return len(host.history)

    runtime.host(NODE, [R431])
    assert sum(line.startswith(LOAD) for line in host.history) == 2
    assert bring() == 0
    runtime.sleep(61)
    assert bring() == 2
    host.available = ()
    assert set(runtime.host(NODE, [R431]).unavailable) == {R421, R431}
    with pytest.raises(RefusedError, match="is not available"):
        bring()


def test_a_download_that_the_package_manager_leaves_out_has_failed() -> None:
    host = host_with(script="has no file")
    with pytest.raises(RefusedError, match=r"Kafka 4\.3\.1 is not available on host kafka-1: .+The node was not st"):
        runtime_on(host).bring(NODE, R431)


@pytest.mark.parametrize(
    ("jars", "release"),
    [
        ("/usr/share/java/kafka/kafka_2.13-4.3.1.jar", R431),
        ("/a/kafka_2.13-4.3.1.jar /a/kafka_2.13-4.3.1-sources.jar /a/kafka_2.13-4.3.1-test.jar", R431),
        ("/a/kafka_2.13-4.3.1.jar /a/kafka_2.13-3.9.1.jar", None),
        ("/a/kafka_2.*.jar", None),
    ],
)
def test_the_installed_release_is_that_of_the_one_jar(jars: str, release: Release | None) -> None:
    assert installed_release(jars, Release.parse) == release


@pytest.mark.parametrize(
    ("path", "mode", "shown", "command"),
    [
        (
            "/data",
            "drwxr-x---. 1 990 989",
            "cannot create files in /data (mode 0750, owner 990, group 989)",
            "setfacl -m u:kafka:rwx /data",
        ),
        (
            CONFIGURATION,
            "-rw-r-----. 1 990 989",
            f"cannot read {CONFIGURATION} (mode 0640, owner 990, group 989)",
            f"setfacl -m u:kafka:r {CONFIGURATION}",
        ),
        (
            "/etc/kafka/ssl",
            "drwx------. 1 990 989",
            "cannot enter /etc/kafka/ssl (mode 0700, owner 990, group 989)",
            "setfacl -m u:kafka:x /etc/kafka/ssl",
        ),
    ],
)
def test_what_a_script_of_the_package_closes_to_the_user_is_named_before_the_start(
    path: str, mode: str, shown: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = host_with()
    host.files[CONFIGURATION] += "listeners=SSL://:9093\nssl.keystore.location=/etc/kafka/ssl/key.p12\n"
    runtime = runtime_on(host)
    runtime.stop(NODE, deadline_s=180)
    walk = FakeHost._walk

    def with_way(self: FakeHost, line: str, paths: Any) -> str:
        ways = walk(self, line, paths).splitlines()
        return "".join(f"{one}\t/etc/kafka/ssl\n" if one.endswith("/key.p12") else f"{one}\n" for one in ways)

    monkeypatch.setattr(FakeHost, "_walk", with_way)
    install = package_module.install_package

    def with_script(*given: Any) -> str:
        host.modes[path] = mode
        return install(*given)

    monkeypatch.setattr(service_module, "install_package", with_script)
    with pytest.raises(FatalError, match="A script of the package can have changed the owner") as raised:
        runtime.install(NODE, R431)
    assert (shown in raised.value.sentence, f"`{command}`" in raised.value.remedy) == (True, True)
    assert host.package == ["4.3.1"], "a repetition finds it installed"
    runtime.install(NODE, R431)
    runtime.start(NODE)
    assert host.pid, "what was closed before keeps no node down"
