"""How a host shows that it can install a release, and return: with the answers of real package managers, and with dnf
and zypper themselves on a machine that has them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.clusters.entries import ServiceEntry, service_of
from kafka_rollout.model.host_state import CORRECT_TRIAL
from kafka_rollout.model.package_managers import PackageAnswer, read_answer, refresh_of
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, PackageSpec, Role
from kafka_rollout.nodes.runtimes.hosts.installing import install_package
from kafka_rollout.nodes.runtimes.hosts.rights import HostRights, sudoers_file
from kafka_rollout.nodes.runtimes.hosts.service import SshServiceRuntime
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from kafka_rollout.observation.run import ReadRun
from kafka_rollout.preparation.node_checks import check_rollback_on_host
from kafka_rollout.releases.facts import Release
from tests.fakes.clock import FakeClock
from tests.fakes.host import FakeHost
from tests.fakes.local_host import permitted
from tests.unit.builders import catalogue

OLD, NEW = Release(3, 9, 1), Release(4, 3, 1)
_SPEC = """Name: kafka
Version: {version}
Release: 1
Summary: Kafka
License: none
BuildArch: noarch
{more}
%description
Kafka.
%install
mkdir -p %{{buildroot}}/usr/share/java/kafka
echo > %{{buildroot}}/usr/share/java/kafka/kafka_2.13-{version}.jar
%files
/usr/share/java/kafka
"""


DNF = ("/usr/bin/dnf", "install", "-y", "kafka-{version}-1")
APT = (
    *("/usr/bin/env", "DEBIAN_FRONTEND=noninteractive", "APT_LISTCHANGES_FRONTEND=none", "/usr/bin/apt-get", "install"),
    *("--yes", "--no-remove", "--allow-downgrades", "-o", "Dpkg::Options::=--force-confold", "kafka={version}-1"),
)
ZYPPER = ("/usr/bin/zypper", "--non-interactive", "install", "--oldpackage", "kafka={version}-1")
# Answers of dnf 4.14 and zypper 1.14.42, without what the test does not need.
DNF_TABLE = """Dependencies resolved.
 Package           Architecture       Version               Repository     Size
{verb}:
 kafka             noarch             3.9.1-1               k             5.9 k
Transaction test succeeded.
Complete!
"""
DNF_NOTHING = "Package kafka-3.9.1-1.noarch is already installed.\nNothing to do.\nComplete!\n"
NOT_RETRIEVED = "Curl error (7): Couldn't connect to server for http://r/repodata/repomd.xml"
LOCKED = "Argument 'kafka-3.9.1-1' matches only packages excluded by versionlock."
LOCKED_4 = "All matches were filtered out by exclude filtering for argument: kafka-3.9.1-1"
UNREAD = f"""Errors during downloading metadata for repository 'k':
  - {NOT_RETRIEVED}
Error: Failed to download metadata for repo 'k': Cannot download repomd.xml: All mirrors were tried
"""


@pytest.mark.parametrize(
    ("install", "code", "printed", "answer", "why"),
    [
        (DNF, 0, DNF_TABLE.format(verb="Downgrading"), PackageAnswer.OFFERED, ""),
        (
            DNF,
            0,
            f"Package jemalloc is already installed.\n{DNF_TABLE.format(verb='Upgrading')}",
            PackageAnswer.OFFERED,
            "",
        ),
        (DNF, 0, DNF_NOTHING, PackageAnswer.INSTALLED, "Package kafka-3.9.1-1.noarch is already installed."),
        (DNF, 0, "Complete!\n", PackageAnswer.UNKNOWN, ""),
        (
            DNF,
            1,
            "No match for argument: kafka-3.9.1-1\nError: Unable to find a match: kafka-3.9.1-1",
            PackageAnswer.MISSING,
            "No match for argument: kafka-3.9.1-1",
        ),
        (
            DNF,
            1,
            "Installed package kafka-3.9.1-1.noarch (from k) not available.\nError: No packages marked for reinstall.",
            PackageAnswer.MISSING,
            "Installed package kafka-3.9.1-1.noarch (from k) not available.",
        ),
        (  # dnf5
            DNF,
            1,
            f"Failed to resolve the transaction:\n{LOCKED}",
            PackageAnswer.UNKNOWN,
            LOCKED,
        ),
        (
            DNF,
            1,
            f"{LOCKED_4}\nError: Unable to find a match: kafka-3.9.1-1",
            PackageAnswer.UNKNOWN,
            LOCKED_4,
        ),
        (  # dnf5
            DNF,
            1,
            "Failed to resolve the transaction:\nPackages for argument 'kafka-3.9.1-1' installed, but not available.",
            PackageAnswer.MISSING,
            "Packages for argument 'kafka-3.9.1-1' installed, but not available.",
        ),
        (
            DNF,
            1,
            f"{UNREAD}Ignoring repositories: k\nNo match for argument: kafka-3.9.1-1\nError: Unable to find a match",
            PackageAnswer.UNKNOWN,
            NOT_RETRIEVED,
        ),
        (
            DNF,
            0,
            f"No match for argument: libs-3.9.1\n{DNF_TABLE.format(verb='Reinstalling')}",
            PackageAnswer.MISSING,
            "No match for argument: libs-3.9.1",
        ),
        (ZYPPER, 0, "Retrieving package kafka-3.9.1-1.noarch (1/1), 5.9 KiB\n", PackageAnswer.OFFERED, ""),
        (ZYPPER, 0, "In cache kafka-3.9.1-1.noarch.rpm (1/1), 5.9 KiB\n", PackageAnswer.OFFERED, ""),
        (
            ZYPPER,
            0,
            "'kafka = 3.9.1-1' is already installed.\nResolving package dependencies...\nNothing to do.\n",
            PackageAnswer.INSTALLED,
            "'kafka = 3.9.1-1' is already installed.",
        ),
        (
            ZYPPER,
            0,
            "Forcing installation of 'kafka-3.9.1-1.noarch' from repository '@System'.\nNothing to do.\n",
            PackageAnswer.MISSING,
            "no repository has the version that is installed",
        ),
        (
            ZYPPER,
            104,
            "'kafka=3.9.1-1' not found in package names. Trying capabilities.\nNo provider of 'kafka=3.9.1-1' found.",
            PackageAnswer.MISSING,
            "No provider of 'kafka=3.9.1-1' found.",
        ),
        (
            DNF,
            1,
            "Error: \n Problem: problem with installed package registry-1-1.noarch\n  - package registry-1-1.noarch "
            "requires kafka = 3.9.1-1, but none of the providers can be installed\n(try to add '--allowerasing')",
            PackageAnswer.UNKNOWN,
            "Problem: problem with installed package registry-1-1.noarch",
        ),
        (
            DNF,
            1,
            "Error: \n Problem: conflicting requests\n  - nothing provides java-21 needed by kafka-4.3.1-1.noarch\n"
            "(try to add '--skip-broken')",
            PackageAnswer.UNKNOWN,
            "nothing provides java-21 needed by kafka-4.3.1-1.noarch",
        ),
        (
            ZYPPER,
            106,
            "Warning: Skipping repository 'other' because of the above error.\nIn cache kafka-3.9.1-1.noarch.rpm (1/1)",
            PackageAnswer.OFFERED,
            "",
        ),
        (ZYPPER, 107, "Retrieving package kafka-3.9.1-1.noarch (1/1), 5.9 KiB\n", PackageAnswer.UNKNOWN, ""),
        (ZYPPER, 7, "System management is locked by the application with pid 7 (zypper).", PackageAnswer.UNKNOWN, ""),
    ],
)
def test_only_a_package_that_was_loaded_is_offered_and_only_a_list_that_was_read_lacks_it(
    install: tuple[str, ...], code: int, printed: str, answer: PackageAnswer, why: str
) -> None:
    assert read_answer(install, "3.9.1", code, printed) == (answer, why)
    assert read_answer(install, "1:3.9.1", code, printed) == (answer, why), "zypper does not print the epoch"


@dataclass
class Repository:
    """What dnf and zypper answer while kafka 3.9.1 is installed. `refresh` and `printed`: exit code and output."""

    refresh: tuple[int, str] = (0, "")
    printed: tuple[int, str] = (1, "")
    asked: list[str] = field(default_factory=list)

    def __call__(self, words: list[str]) -> Done:
        self.asked.append(" ".join(words))
        code, text = self.refresh if {"refresh", "makecache"} & {*words} else self.printed
        return Done(code, text.encode(), "")


def test_root_refreshes_the_lists_and_loads_each_release_before_a_stop() -> None:
    repository = Repository(printed=(0, DNF_TABLE.format(verb="Upgrading") + DNF_NOTHING))
    runtime = runtime_with(DNF, repository)
    (problem,) = [one for one in runtime.host(runtime.cluster.node(1), [OLD, NEW]).unavailable.items() if one[0] == OLD]
    load = "--setopt=tsflags=test --setopt=keepcache=1"
    assert repository.asked[:3] == [
        "makecache --refresh",
        f"install -y kafka-3.9.1-1 {load}",
        f"reinstall -y kafka-3.9.1-1 {load}",
    ]
    assert repository.asked.count("makecache --refresh") == 1, "once for all releases"
    assert problem[1].is_unknown, "a reinstallation that has nothing to do shows nothing"


def test_a_rollback_begins_with_the_lists_of_the_host_and_refreshes_them_only_if_they_lack_the_package() -> None:
    repository = Repository(printed=(0, DNF_TABLE.format(verb="Downgrading")))
    runtime = runtime_with(DNF, repository)
    node = runtime.cluster.node(1)
    runtime.shell.package = [str(NEW)]  # type: ignore[attr-defined]
    runtime.bring(node, OLD)
    assert [words.split()[0] for words in repository.asked] == ["install"]
    repository.printed = 1, "No match for argument: kafka-3.9.1-1"
    runtime.sleep(61)
    with pytest.raises(RefusedError, match="is not available on host kafka-1"):
        runtime.bring(node, OLD)
    assert [words.split()[0] for words in repository.asked[1:]] == ["install", "makecache", "install"]


def test_a_rollback_tries_again_what_dnf_has_not_read_because_its_list_was_held_for_expired() -> None:
    unread = 1, "Ignoring repositories: site\nNo match for argument: kafka-3.9.1-1"
    repository = Repository(printed=unread)
    runtime = runtime_with(DNF, repository)
    runtime.shell.package = [str(NEW)]  # type: ignore[attr-defined]

    def then_read(words: list[str]) -> Done:
        done = repository(words)
        repository.printed = 0, DNF_TABLE.format(verb="Downgrading")
        return done

    runtime.shell.answers["dnf"] = then_read  # type: ignore[attr-defined]
    runtime.bring(runtime.cluster.node(1), OLD)
    assert [words.split()[0] for words in repository.asked] == ["install", "install"]
    repository.printed = unread
    runtime.shell.answers["dnf"] = repository  # type: ignore[attr-defined]
    runtime.sleep(61)
    with pytest.raises(RefusedError, match="Ignoring repositories: site"):
        runtime.bring(runtime.cluster.node(1), OLD)


def test_the_check_of_a_host_before_a_rollback_asks_no_package_manager() -> None:
    """It would let dnf hold its lists for expired, and without the repository no package could be installed then."""
    repository = Repository(printed=(0, DNF_TABLE.format(verb="Downgrading")))
    runtime = runtime_with(DNF, repository)
    runtime.shell.package = [str(NEW)]  # type: ignore[attr-defined]
    node = runtime.cluster.node(1)
    ports = SimpleNamespace(cluster=runtime.cluster, runtime=runtime, catalogue=catalogue())
    plan = SimpleNamespace(config_changes=(), unknowns=frozenset())
    check_rollback_on_host(cast(ReadRun, SimpleNamespace(ports=ports, plan=plan)), OLD, node)
    assert repository.asked == []


def test_a_list_that_a_successful_refresh_has_left_out_proves_nothing_missing() -> None:
    """skip_if_unavailable: dnf ends without an error."""
    repository = Repository(refresh=(0, "Ignoring repositories: site\nMetadata cache created."))
    repository.printed = 1, "No match for argument: kafka-4.3.1-1"
    runtime = runtime_with(DNF, repository)
    problem = runtime.host(runtime.cluster.node(1), [NEW]).unavailable[NEW]
    assert problem.is_unknown
    assert problem.sentence.endswith("Failed to fetch the lists: Ignoring repositories: site.")


@pytest.mark.parametrize("printed", [LOCKED, f"{LOCKED_4}\nError: Unable to find a match: kafka-3.9.1-1"])
def test_a_lock_of_dnf_is_named_with_the_option_that_passes_it(printed: str) -> None:
    repository = Repository(printed=(1, printed))
    runtime = runtime_with(DNF, repository)
    problem = runtime.host(runtime.cluster.node(1), [NEW]).unavailable[NEW]
    assert problem.is_unknown
    assert "--setopt=disable_excludes=* for dnf5, with --disableplugin=versionlock for dnf 4" in problem.remedy
    assert problem.sentence.endswith(f"{printed.splitlines()[0].removesuffix('.')}.")


def test_an_old_list_that_lacks_the_package_is_unknown() -> None:
    repository = Repository(refresh=(4, "Could not refresh the repositories because of errors."))
    repository.printed = 104, "No provider of 'kafka=4.3.1-1' found."
    runtime = runtime_with(ZYPPER, repository)
    problem = runtime.host(runtime.cluster.node(1), [NEW]).unavailable[NEW]
    assert (problem.is_unknown, problem.remedy) == (True, CORRECT_TRIAL)
    assert problem.sentence == (
        "Host kafka-1 did not show that it can install the package of Kafka 4.3.1: `/usr/bin/zypper --non-interactive "
        "install --download-only --oldpackage kafka=4.3.1-1`: Failed to fetch the lists: Could not refresh the "
        "repositories because of errors."
    )


@pytest.mark.parametrize(
    ("install", "locked"),
    [
        (
            APT,
            Done(
                100,
                b"",
                "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 17 (apt-get)\nE: Unable to "
                "acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?\n",
            ),
        ),
        (ZYPPER, Done(7, b"System management is locked by the application with pid 17 (zypper).\n", "")),
    ],
    ids=["apt", "zypper"],
)
def test_a_trial_that_has_the_lock_ends_no_installation_of_a_run(install: tuple[str, ...], locked: Done) -> None:
    """A plan tries packages without the lock of the cluster, so it can hold the lock of the package manager."""
    answers = [locked, locked]
    runtime = runtime_with(install, lambda _: answers.pop() if answers else Done(0, b"in download only mode 4.3.1", ""))
    node = runtime.cluster.node(1)
    assert install_package(runtime, node, NEW) == ""
    answers += [locked, locked]
    assert NEW not in runtime.host(node, [NEW]).unavailable
    answers += [locked] * 1000
    began = runtime.monotonic()
    assert runtime.host(node, [NEW]).unavailable[NEW].is_unknown
    assert runtime.monotonic() - began < 300


def test_a_package_without_any_trial_is_unknown() -> None:
    runtime = runtime_with(DNF, Repository(printed=(0, "3.9.1-1")))
    node = runtime.cluster.node(1)
    assert node.service is not None
    untried = PackageSpec(install=("/usr/local/sbin/install-kafka", "{version}"))
    runtime.cluster = replace(runtime.cluster, nodes=(replace(node, service=replace(node.service, package=untried)),))
    assert runtime.host(runtime.cluster.node(1), [NEW]).unavailable[NEW].is_unknown


def test_a_credential_that_root_alone_can_read_is_not_shown() -> None:
    text = "Curl error (22): The requested URL returned error: 401 for https://rollout:geheim@repo.example.com/k"
    runtime = runtime_with(DNF, Repository(printed=(1, text)))
    problem = runtime.host(runtime.cluster.node(1), [NEW]).unavailable[NEW]
    assert problem.is_unknown
    assert "geheim" not in problem.sentence
    assert "repo.example.com" in problem.sentence


def test_a_command_that_sudo_refuses_is_unknown_and_the_remedy_is_its_line() -> None:
    runtime = runtime_with(DNF, Repository())
    runtime.shell.refused = {"dnf"}  # type: ignore[attr-defined]
    problem = runtime.host(runtime.cluster.node(1), [NEW]).unavailable[NEW]
    line = "(root) NOPASSWD: /usr/bin/dnf makecache --refresh"
    assert (problem.is_unknown, problem.remedy) == (True, f"Add to the sudoers file of the host: {line}")
    with pytest.raises(RefusedError, match=r"did not show .+ The node was not stopped\."):
        runtime.bring(runtime.cluster.node(1), NEW)


def test_root_alone_asks_a_package_manager_and_the_printed_sudoers_file_has_each_command() -> None:
    for install in (DNF, ZYPPER):
        repository = Repository(printed=(0, "3.9.1-1 is already installed"))
        runtime = runtime_with(install, repository)
        node, lines = runtime.cluster.node(1), list[str]()
        runtime.shell.on_command = lines.append  # type: ignore[attr-defined]
        runtime.host(node, [NEW])
        lists = (" -l ", " download ")  # the SSH user reads the files and the scripts of a package
        asked = [line for line in lines if f"{install[0]} " in line and not any(one in line for one in lists)]
        assert asked
        assert all(f"sudo -n -u root {install[0]} " in line for line in asked)
        file = sudoers_file("rollout", HostRights(node.service).all("/data"))
        assert repository.asked
        for words in repository.asked:
            assert permitted(file, ["sudo", "-n", "-u", "root", install[0], *words.split()]), words


def runtime_with(install: Sequence[str], answers: Callable[[list[str]], Done], **given: Any) -> SshServiceRuntime:
    """A host on which root's package manager is `answers`, and the SSH user has none."""
    entry = ServiceEntry.model_validate({"package": {"install": install, **given}})
    service = service_of("kafka-1", [Role.BROKER], entry)
    node = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=service)
    cluster, clock = ClusterSpec(name="far", runtime="ssh_service", nodes=(node,)), FakeClock()
    program = next(one for one in install if one.startswith("/") and not one.endswith("/env")).rpartition("/")[2]
    host = FakeHost(package=[str(OLD)], loaded=str(OLD), answers={program: answers, "env": answers})
    return SshServiceRuntime(cluster, host, identify, sleep=clock.sleep, monotonic=clock.monotonic)


def identify(version: str) -> Release | None:
    return next((one for one in (OLD, NEW) if str(one) == version), None)


@dataclass
class Machine:
    """A package manager of root with a folder of its own, in which kafka 3.9.1 is installed, and a repository with both
    releases behind a server."""

    home: Path
    program: str
    url: str

    def __post_init__(self) -> None:
        self.root, self.pool = self.home / "root", self.home / "repository"
        for version in (OLD, NEW):
            self.build(version)
        self.index()
        folder = self.root / ("etc/yum.repos.d" if self.program == "dnf" else "etc/zypp/repos.d")
        folder.mkdir(parents=True)
        (folder / "site.repo").write_text(
            f"[site]\nname=site\nbaseurl={self.url}\nenabled=1\nautorefresh=0\ngpgcheck=0\nrepo_gpgcheck=0\n"
        )
        of_dnf = (f"--installroot={self.root}", "--releasever=1", f"--setopt=reposdir={folder}")
        self.install: tuple[str, ...] = (
            ("/usr/bin/dnf", "install", "-y", *of_dnf, "kafka-{version}-1")
            if self.program == "dnf"
            else ("/usr/bin/zypper", "-n", "--root", f"{self.root}", "install", "--oldpackage", "kafka={version}-1")
        )
        self.runtime = runtime_with(self.install, self.run)
        done = self.run([one.replace("{version}", str(OLD)) for one in self.install[1:]])
        assert (done.code, self.installed) == (0, [str(OLD)]), done.out + done.err

    @property
    def node(self) -> NodeSpec:
        return self.runtime.cluster.node(1)

    @property
    def installed(self) -> list[str]:
        jars = (self.root / "usr/share/java/kafka").glob("kafka_*")
        return sorted(one.name.removeprefix("kafka_2.13-").removesuffix(".jar") for one in jars)

    def file(self, version: Release) -> Path:
        return self.pool / f"kafka-{version}-1.noarch.rpm"

    def build(self, version: Release, name: str = "kafka", more: str = "") -> None:
        spec = self.home / "kafka.spec"
        spec.write_text(_SPEC.format(version=version, more=more).replace("Name: kafka", f"Name: {name}"))
        command = ["rpmbuild", "-bb", "--define", f"_topdir {self.home}/build", "--define", f"_rpmdir {self.pool}"]
        command += ["--define", "_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm"]
        subprocess.run([*command, str(spec)], check=True, capture_output=True)

    def index(self) -> None:
        subprocess.run(["createrepo_c", "--quiet", str(self.pool)], check=True, capture_output=True)

    def run(self, words: list[str]) -> Done:
        env = {**os.environ, "LC_ALL": "C"}
        ran = subprocess.run(
            [f"/usr/bin/{self.program}", *words], env=env, capture_output=True, timeout=60, check=False
        )
        if hasattr(self, "runtime"):
            self.runtime.shell.package = self.installed  # type: ignore[attr-defined]
        return Done(ran.returncode, ran.stdout, ran.stderr.decode())

    @property
    def refresh(self) -> list[str]:
        return list(refresh_of(self.install)[1:])

    def problems(self) -> dict[Release, tuple[str, bool]]:
        """Release → what a plan says, and whether it is unknown."""
        found = self.runtime.host(self.node, [NEW]).unavailable
        return {release: (one.sentence, one.is_unknown) for release, one in found.items()}

    def bring(self, release: Release, back: Release | None) -> None:
        """As right before a stop, a while after the plan."""
        self.runtime.sleep(61)
        self.runtime.bring(self.node, release, back=back)

    def replace(self, release: Release) -> None:
        done = self.run([one.replace("{version}", str(release)) for one in self.install[1:]])
        assert (done.code, self.installed) == (0, [str(release)]), done.out + done.err


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


_TOOLS = ("dnf", "zypper", "rpmbuild", "createrepo_c")


@pytest.fixture(params=["dnf", "zypper"])
def machine(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Machine, ThreadingHTTPServer]]:
    if missing := [one for one in _TOOLS if shutil.which(one) is None] or os.geteuid() != 0:
        pytest.skip(f"only root can install, with dnf, zypper, rpmbuild and createrepo_c: {missing}")
    (tmp_path / "repository").mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(tmp_path / "repository")))
    Thread(target=server.serve_forever, daemon=True).start()
    yield Machine(tmp_path, request.param, f"http://127.0.0.1:{server.server_port}/"), server
    server.shutdown()
    server.server_close()


@pytest.mark.full
def test_both_releases_are_loaded_and_nothing_is_installed(machine: tuple[Machine, ThreadingHTTPServer]) -> None:
    one, _ = machine
    assert one.problems() == {}
    one.bring(NEW, OLD)
    assert one.installed == [str(OLD)]
    one.replace(NEW)
    one.bring(OLD, NEW)
    one.replace(OLD)


@pytest.mark.full
def test_a_release_that_left_the_list_since_the_plan_is_missing_also_if_it_runs(
    machine: tuple[Machine, ThreadingHTTPServer],
) -> None:
    one, _ = machine
    assert one.problems() == {}
    one.file(OLD).unlink()
    one.index()
    with pytest.raises(RefusedError, match=r"The package of Kafka 3\.9\.1 is not available on host kafka-1"):
        one.bring(NEW, OLD)
    assert {release: unknown for release, (_, unknown) in one.problems().items()} == {OLD: False}


@pytest.mark.full
def test_a_release_that_another_package_does_not_permit_is_found_by_the_plan(
    machine: tuple[Machine, ThreadingHTTPServer],
) -> None:
    one, _ = machine
    one.build(OLD, "registry", more=f"Requires: kafka = {OLD}-1")
    one.index()
    one.run(one.refresh)
    assert (
        one.run([word.replace("kafka", "registry").replace("{version}", str(OLD)) for word in one.install[1:]]).code
        == 0
    )
    ((release, (sentence, is_unknown)),) = one.problems().items()
    assert (release, is_unknown) == (NEW, True)
    assert "registry" in sentence
    assert one.installed == [str(OLD)]


@pytest.mark.full
def test_a_listed_package_whose_file_is_gone_is_found_by_the_plan(machine: tuple[Machine, ThreadingHTTPServer]) -> None:
    one, _ = machine
    for cached in one.root.rglob("kafka-*.rpm"):
        cached.unlink()
    one.file(OLD).unlink()
    ((release, (sentence, _)),) = one.problems().items()
    assert release == OLD
    assert "kafka-3.9.1-1.noarch" in sentence.rpartition("`: ")[2], sentence
    with pytest.raises(RefusedError, match=r"The node was not stopped\."):
        one.bring(NEW, OLD)


@pytest.mark.full
def test_what_a_trial_has_loaded_is_kept_for_a_rollback(machine: tuple[Machine, ThreadingHTTPServer]) -> None:
    one, server = machine
    assert one.problems() == {}
    one.file(OLD).unlink()
    one.bring(NEW, OLD)
    one.replace(NEW)
    server.shutdown()
    server.server_close()
    one.bring(OLD, None)
    one.replace(OLD)


@pytest.mark.full
def test_a_plan_that_is_made_while_the_repository_is_down_does_not_keep_a_run_from_its_rollback(
    machine: tuple[Machine, ThreadingHTTPServer],
) -> None:
    one, server = machine
    assert one.problems() == {}
    one.replace(NEW)
    server.shutdown()
    server.server_close()
    assert OLD not in one.runtime.host(one.node, [OLD]).unavailable
    one.bring(OLD, None)
    one.replace(OLD)


@pytest.mark.full
def test_a_repository_that_does_not_respond_is_unknown_and_not_without_the_package(
    machine: tuple[Machine, ThreadingHTTPServer],
) -> None:
    one, server = machine
    server.shutdown()
    server.server_close()
    found = one.problems()
    assert {release: unknown for release, (_, unknown) in found.items()} == {OLD: True, NEW: True}
    assert all("onnect" in sentence for sentence, _ in found.values()), found
