"""What an inventory must say so that an installation is tried before the stop; with the real apt of this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytest
from pydantic import ValidationError

from kafka_rollout.clusters.entries import PackageEntry, ServiceEntry, service_of
from kafka_rollout.model.package_managers import (
    PackageAnswer,
    download_again_of,
    download_of,
    names_of,
    read_answer,
    refresh_of,
)
from kafka_rollout.model.topology import Role
from tools.testbed.packages import PACKAGE

SCRIPT = ("/usr/local/sbin/install-kafka", "{version}")
APT = ("/usr/bin/env", "DEBIAN_FRONTEND=noninteractive", "/usr/bin/apt-get", "install")
QUIET = ("-o", "Dpkg::Options::=--force-confold", "kafka={version}-1")
DNF = ("/usr/bin/dnf", "install", "-y", "kafka-{version}")
ZYPPER = ("/usr/bin/zypper", "--non-interactive", "install", "--oldpackage", "kafka={version}")
LIST = ("/usr/bin/dnf", "list", "--available", "kafka-{version}")
TEST = ("--setopt=tsflags=test", "--setopt=keepcache=1")
LOAD = " ".join(TEST)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"install": (*APT, "--allow-downgrades", *QUIET)}, "install needs --yes"),
        ({"install": (*APT, "--yes", *QUIET)}, "install needs --allow-downgrades"),
        (
            {"install": (*APT, "--yes", "--allow-downgrades", *QUIET)},
            "install needs --no-remove: without it, apt-get removes other packages",
        ),
        ({"install": (*DNF, "--allowerasing")}, "install has --allowerasing: with it, dnf removes other packages"),
        ({"install": (*DNF, "--setopt=site.strict=0")}, "ends without an error where nothing is installed"),
        ({"install": (*ZYPPER, "--force-resolution")}, "install has --force-resolution"),
        (
            {
                "install": (*APT, "-y", "--allow-downgrades", "--no-remove", *QUIET),
                "check": (*APT, "--simulate", *QUIET),
            },
            "check is for a script only: remove it, and the run tries `/usr/bin/env",
        ),
        ({"install": SCRIPT}, "check is missing"),
        (
            {"install": DNF, "check": ("/usr/bin/dnf", "list", "--showduplicates", "kafka-{version}")},
            "check is for a script only: remove it, and the run tries `/usr/bin/dnf install -y kafka-{version} --set",
        ),
        ({"install": DNF, "download": (*DNF, "--downloadonly")}, "download is for a script only: remove it"),
        ({"install": (*DNF, "-q")}, "install has -q: with it, dnf does not print what it does"),
        ({"install": ("/usr/bin/dnf", "install", "kafka-{version}")}, "install needs -y"),
        ({"install": ("/usr/bin/yum", *DNF[1:])}, "yum, which installs no older version before RHEL 8"),
        ({"install": ("/usr/bin/microdnf", *DNF[1:])}, "microdnf, which tests no installation"),
        ({"install": ZYPPER, "download": (*ZYPPER, "--dry-run")}, "download is for a script only: remove it"),
        (
            {"install": (*ZYPPER[:3], "kafka={version}", "--oldpackage")},
            "zypper reads no option after a package: write --oldpackage before kafka={version}",
        ),
        ({"install": ZYPPER[:3] + ZYPPER[4:]}, "install needs --oldpackage"),
        ({"install": ("/usr/bin/rpm", "-U", "kafka-{version}"), "check": LIST}, "resolves no dependencies"),
        (
            {"install": (*APT[:2], "/usr/bin/aptitude", "--assume-yes", *PACKAGE.install[4:])},
            "install names /usr/bin/aptitude, which removes packages without a question: name apt-get",
        ),
        (
            {"install": PACKAGE.install, "download": [one for one in PACKAGE.download if one != "--reinstall"]},
            "download is for a script only: remove it, and the run tries",
        ),
        (
            {"install": PACKAGE.install, "download": (*PACKAGE.download[:-1], "other={version}")},
            "download is for a script only: remove it, and the run tries",
        ),
    ],
)
def test_an_installation_that_is_not_tried_before_the_stop_is_refused(
    entry: dict[str, tuple[str, ...]], says: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        PackageEntry.model_validate(entry)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("entry", "check", "download"),
    [
        ({"install": SCRIPT, "check": ("/usr/bin/try", "{version}")}, ("/usr/bin/try", "{version}"), ()),
        (
            {"install": SCRIPT, "check": SCRIPT, "download": ("/usr/bin/get", "{version}")},
            SCRIPT,
            ("/usr/bin/get", "{version}"),
        ),
        ({"install": DNF}, (), (*DNF, *TEST)),
        ({"install": ZYPPER}, (), (*ZYPPER[:3], "--download-only", *ZYPPER[3:])),
        ({"install": PACKAGE.install, "download": PACKAGE.download}, (), PACKAGE.download),
        ({"install": PACKAGE.install}, (), PACKAGE.download),
    ],
)
def test_what_is_tried_before_the_stop_follows_from_the_installation(
    entry: dict[str, tuple[str, ...]], check: tuple[str, ...], download: tuple[str, ...]
) -> None:
    package = service_of("h", [Role.BROKER], ServiceEntry.model_validate({"package": entry})).package
    assert package is not None
    assert (package.check, package.download) == (check, download)


@pytest.mark.parametrize(
    ("install", "tried", "names"),
    [
        (
            ("/usr/bin/apt", "-y", "install", "-o", "A::B=1", "-t", "main", "kafka:all={version}"),
            ["/usr/bin/apt -y install --download-only --reinstall -o A::B=1 -t main kafka:all={version}"],
            ("kafka:all",),
        ),
        (
            (*DNF[:3], "--enablerepo", "site", "--setopt=a=b", "kafka-{version}-1", "jemalloc", "libs-{version}"),
            [
                "/usr/bin/dnf install -y --enablerepo site --setopt=a=b kafka-{version}-1 jemalloc libs-{version} "
                + LOAD,
                f"/usr/bin/dnf reinstall -y --enablerepo site --setopt=a=b kafka-{{version}}-1 libs-{{version}} {LOAD}",
                "/usr/bin/dnf --enablerepo site --setopt=a=b makecache --refresh",
            ],
            ("kafka", "libs"),
        ),
        (
            ("/usr/bin/dnf5", "-y", "install", "kafka-1:{version}.noarch"),
            [
                f"/usr/bin/dnf5 -y install kafka-1:{{version}}.noarch {LOAD}",
                f"/usr/bin/dnf5 -y reinstall kafka-1:{{version}}.noarch {LOAD}",
                "/usr/bin/dnf5 makecache --refresh",
            ],
            ("kafka",),
        ),
        (
            (
                "/usr/bin/zypper",
                "-n",
                "--root",
                "/r",
                "in",
                "--oldpackage",
                "-r",
                "site",
                "kafka={version}",
                "jemalloc",
            ),
            [
                "/usr/bin/zypper -n --root /r in --download-only --oldpackage -r site kafka={version} jemalloc",
                "/usr/bin/zypper -n --root /r in --download-only --force --oldpackage -r site kafka={version}",
                "/usr/bin/zypper -n --root /r refresh",
            ],
            ("kafka",),
        ),
        (
            (*APT[2:], "--yes", "/srv/kafka_{version}_all.deb"),
            ["/usr/bin/apt-get install --download-only --reinstall --yes /srv/kafka_{version}_all.deb"],
            (),
        ),
        (SCRIPT, [], ()),
    ],
)
def test_a_trial_has_the_words_of_the_installation(
    install: tuple[str, ...], tried: list[str], names: tuple[str, ...]
) -> None:
    found = filter(None, (download_of(install), download_again_of(install), refresh_of(install)))
    assert [" ".join(words) for words in found] == tried
    assert names_of(install) == names


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
        f"{entry.format(version)}Filename: ./kafka_{version}-1_all.deb\nSize: 1\nSHA256: {sha256(b'x').hexdigest()}\n\n"
        for version in ("3.9.1", "4.3.1")
    )
    for version in ("3.9.1", "4.3.1"):
        (repository / f"kafka_{version}-1_all.deb").write_text("x")
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
    tried = apt(root, download_of(words))
    assert (
        read_answer(words, wanted, tried.returncode, tried.stdout + tried.stderr)[0] is PackageAnswer.OFFERED
    ) is not lacks
    assert (tried.returncode != 0) is lacks, tried.stderr


def test_the_trial_fails_where_apt_would_remove_what_needs_the_installed_release(root: Path) -> None:
    install(root, "4.3.1", "install")
    with (root / "var/lib/dpkg/status").open("a") as status:
        status.write(
            "Package: registry\nStatus: install ok installed\nVersion: 1\nArchitecture: all\n"
            "Maintainer: k <k@example.com>\nDescription: R\nDepends: kafka (= 4.3.1-1)\n\n"
        )
    words = [word.replace("{version}", "3.9.1") for word in PACKAGE.install]
    refused = apt(root, download_of(words))
    assert refused.returncode != 0
    assert "remove is disabled" in refused.stderr
    removes = apt(root, download_of([word for word in words if word != "--no-remove"]))
    assert (removes.returncode, "The following packages will be REMOVED:" in removes.stdout) == (0, True)


@pytest.mark.parametrize("offered", [("3.9.1", "4.3.1"), ("4.3.1",), ()])
@pytest.mark.parametrize("installed", ["3.9.1", "4.3.1"])
def test_what_is_installed_is_offered_only_if_a_repository_has_it(
    root: Path, offered: tuple[str, ...], installed: str
) -> None:
    index = root.parent / "repository/Packages"
    entries = index.read_text().split("\n\n")
    index.write_text("".join(f"{one}\n\n" for one in entries if any(f"Version: {v}-" in one for v in offered)))
    install(root, installed, "install")
    assert apt(root, ["/usr/bin/apt-get", "update", "--quiet"]).returncode == 0
    for version in ("3.9.1", "4.3.1"):
        tried = apt(root, [word.replace("{version}", version) for word in PACKAGE.download])
        answer, why = read_answer(PACKAGE.install, f"{version}-1", tried.returncode, tried.stdout + tried.stderr)
        assert answer is (PackageAnswer.OFFERED if version in offered else PackageAnswer.MISSING), why


def test_a_listed_package_without_a_file_is_not_offered(root: Path) -> None:
    (root.parent / "repository/kafka_4.3.1-1_all.deb").unlink()
    tried = apt(root, [word.replace("{version}", "4.3.1") for word in PACKAGE.download])
    answer, why = read_answer(PACKAGE.install, "4.3.1-1", tried.returncode, tried.stdout + tried.stderr)
    assert answer is PackageAnswer.UNKNOWN
    assert why.startswith("E: Failed to fetch file:")
