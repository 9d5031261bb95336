"""What an inventory must say so that an installation is tried before the stop; with the real apt of this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import ValidationError

from kafka_rollout.clusters.entries import PackageEntry, ServiceEntry, service_of
from kafka_rollout.clusters.package_managers import trial_of
from kafka_rollout.model.topology import Role
from tools.testbed.packages import PACKAGE

SCRIPT = ("/usr/local/sbin/install-kafka", "{version}")
APT = ("/usr/bin/env", "DEBIAN_FRONTEND=noninteractive", "/usr/bin/apt-get", "install")
QUIET = ("-o", "Dpkg::Options::=--force-confold", "kafka={version}-1")
DNF = ("/usr/bin/dnf", "install", "-y", "kafka-{version}")
ZYPPER = ("/usr/bin/zypper", "--non-interactive", "install", "--oldpackage", "kafka={version}")
LIST = ("/usr/bin/dnf", "list", "kafka-{version}")
TEST = "--setopt=tsflags=test"


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"install": (*APT, "--allow-downgrades", *QUIET)}, "install needs --yes"),
        ({"install": (*APT, "--yes", *QUIET)}, "install needs --allow-downgrades"),
        (
            {
                "install": (*APT, "-y", "--allow-downgrades", *QUIET),
                "check": ("/usr/bin/apt-get", "install", "--simulate", "--allow-downgrades", "kafka={version}-1"),
            },
            "check answers another question than install: remove it, and the run tries `/usr/bin/env",
        ),
        ({"install": SCRIPT}, "check is missing"),
        ({"install": DNF, "check": LIST}, "download must be the words of install and --setopt=tsflags=test"),
        ({"install": DNF, "check": LIST, "download": (*DNF, "--downloadonly")}, "download must be the words"),
        ({"install": DNF, "check": LIST, "download": (*LIST, TEST)}, "download must be the words"),
        ({"install": DNF, "download": (*DNF, TEST)}, "check is missing"),
        ({"install": ("/usr/bin/dnf", "install", "kafka-{version}"), "check": LIST}, "install needs -y"),
        ({"install": ZYPPER, "check": LIST}, "download must be the words of install and --dry-run"),
        ({"install": ZYPPER[:3] + ZYPPER[4:], "check": LIST}, "install needs --oldpackage"),
        ({"install": ("/usr/bin/rpm", "-U", "kafka-{version}"), "check": LIST}, "resolves no dependencies"),
    ],
)
def test_an_installation_that_is_not_tried_before_the_stop_is_refused(
    entry: dict[str, tuple[str, ...]], says: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        PackageEntry.model_validate(entry)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "entry",
    [
        {"install": SCRIPT, "check": ("/usr/local/bin/try-kafka", "{version}")},
        {"install": DNF, "check": LIST, "download": (*DNF, TEST)},
        {"install": ZYPPER, "check": LIST, "download": (*ZYPPER, "--dry-run")},
        {"install": PACKAGE.install, "check": PACKAGE.check},
        {"install": PACKAGE.install},
    ],
)
def test_an_installation_that_is_tried_is_read(entry: dict[str, tuple[str, ...]]) -> None:
    package = service_of("h", [Role.BROKER], ServiceEntry.model_validate({"package": entry})).package
    assert package is not None
    assert package.check == entry.get("check", PACKAGE.check)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of an apt of its own, with kafka 3.9.1 and 4.3.1 in a repository."""
    root = tmp_path / "root"
    for folder in ("etc/apt/preferences.d", "etc/apt/apt.conf.d", "var/lib/dpkg", "var/lib/apt/lists/partial"):
        (root / folder).mkdir(parents=True)
    (root / "var/cache/apt/archives/partial").mkdir(parents=True)
    entry = "Package: kafka\nVersion: {}-1\nArchitecture: all\nMaintainer: k <k@example.com>\nDescription: Kafka\n"
    repository = tmp_path / "repository"
    repository.mkdir()
    index = "".join(
        f"{entry.format(version)}Filename: ./kafka_{version}-1_all.deb\nSize: 1\nSHA256: {'0' * 64}\n\n"
        for version in ("3.9.1", "4.3.1")
    )
    (repository / "Packages").write_text(index)
    (root / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{repository} ./\n")
    (tmp_path / "apt.conf").write_text(
        f'Dir "{root}";\nDir::State::status "{root}/var/lib/dpkg/status";\nDebug::NoLocking "1";\n'
        'APT::Architecture "all";\nAPT::Sandbox::User "root";\n'
    )
    install(root, "4.3.1", "install")
    assert apt(root, ["/usr/bin/apt-get", "update", "--quiet"]).returncode == 0
    return root


def install(root: Path, version: str, selection: str) -> None:
    (root / "var/lib/dpkg/status").write_text(
        f"Package: kafka\nStatus: {selection} ok installed\nVersion: {version}-1\nArchitecture: all\n"
        "Maintainer: k <k@example.com>\nDescription: Kafka\n\n"
    )


def apt(root: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "APT_CONFIG": str(root.parent / "apt.conf"), "LC_ALL": "C"}
    return subprocess.run(words, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(("installed", "wanted"), [("3.9.1", "4.3.1"), ("4.3.1", "3.9.1")], ids=["ahead", "back"])
@pytest.mark.parametrize("selection", ["install", "hold"])
@pytest.mark.parametrize("option", [None, "--allow-downgrades", "--allow-change-held-packages"])
def test_the_trial_passes_only_if_apt_would_install(
    root: Path, installed: str, wanted: str, selection: str, option: str | None
) -> None:
    install(root, installed, selection)
    words = [word.replace("{version}", wanted) for word in PACKAGE.install if word != option]
    lacks = (option == "--allow-downgrades" and wanted < installed) or (
        option == "--allow-change-held-packages" and selection == "hold"
    )
    tried = apt(root, trial_of(words))
    assert (tried.returncode != 0) is lacks, tried.stderr
    former = ["/usr/bin/apt-get", "install", "--simulate", "--allow-downgrades", f"kafka={wanted}-1"]
    assert apt(root, former).returncode == 0, "without --yes, apt decides otherwise"
