"""Kafka as a Debian package in a local repository: jars in /usr/share/java/kafka, a unit, scripts as debhelper's."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kafka_rollout.model.package_managers import download_of
from kafka_rollout.model.topology import PackageSpec
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tools.testbed.image import KAFKA
from tools.testbed.installation import UNIT, write_release
from tools.testbed.machine import run

# As in docs/packages.md.
_INSTALL = (
    "/usr/bin/env",
    "DEBIAN_FRONTEND=noninteractive",
    "APT_LISTCHANGES_FRONTEND=none",
    "/usr/bin/apt-get",
    "install",
    "--yes",
    "--no-remove",
    "--allow-downgrades",
    "--allow-change-held-packages",
    "-o",
    "DPkg::Lock::Timeout=300",
    "-o",
    "Dpkg::Options::=--force-confold",
    "kafka={version}-1",
)
PACKAGE = PackageSpec(install=_INSTALL, download=download_of(_INSTALL))
SLOW = "/run/slow-kafka-package"  # a file; while it exists, the installation waits in its script
_REPOSITORY = "srv/kafka"
# What dh_installsystemd writes for a unit: enable it, and start or restart it.
_POSTINST = f"""#!/bin/sh
set -e
test "$1" = configure || exit 0
while test -e {SLOW}; do sleep 0.1; done
deb-systemd-helper unmask kafka.service >/dev/null || true
if deb-systemd-helper --quiet was-enabled kafka.service; then
  deb-systemd-helper enable kafka.service >/dev/null || true
else
  deb-systemd-helper update-state kafka.service >/dev/null || true
fi
if test -d /run/systemd/system; then
  systemctl --system daemon-reload >/dev/null || true
  if test -n "$2"; then action=restart; else action=start; fi
  deb-systemd-invoke $action kafka.service >/dev/null || true
fi
"""
INSTALL = f"""set -e
echo 'deb [trusted=yes] file:/{_REPOSITORY} ./' > /etc/apt/sources.list
rm -rf /etc/apt/sources.list.d
apt-get update --quiet
apt-get install --yes --quiet -o Dpkg::Options::=--force-confold kafka={{release}}-1
apt-mark hold kafka
systemctl disable --quiet kafka.service
"""


def repository_layer(folder: Path, releases: list[Release], cache: ReleaseCache) -> Path:
    """Make a file system layer with a repository of packages."""
    layer = folder / "packages"
    repository = layer / _REPOSITORY
    repository.mkdir(parents=True)
    index = ""
    for release in releases:
        package = _build(folder / f"package-{release}", repository, release, cache)
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        index += f"{run('dpkg-deb', '--field', package)}Filename: ./{package.name}\n"
        index += f"Size: {package.stat().st_size}\nSHA256: {digest}\n\n"
    (repository / "Packages").write_text(index)
    return layer


def _build(root: Path, repository: Path, release: Release, cache: ReleaseCache) -> Path:
    jars, home, units = root / PACKAGE.jars[1:], root / "usr/share/kafka", root / "lib/systemd/system"
    for path in (jars, home, units, root / "etc/kafka", root / "DEBIAN"):
        path.mkdir(parents=True)
    (home / "libs").symlink_to("../java/kafka")
    write_release(home, release, cache)
    (units / "kafka.service").write_text(UNIT.replace("/opt/kafka/bin", "/usr/share/kafka/bin"))
    (root / "etc/kafka/server.properties").write_text(f"# Of the package of {release}.\nlog.dirs=/tmp/kafka-logs\n")
    control = root / "DEBIAN"
    (control / "conffiles").write_text("/etc/kafka/server.properties\n")
    (control / "control").write_text(
        f"Package: kafka\nVersion: {release}-1\nArchitecture: all\nMaintainer: {KAFKA} <kafka@example.com>\n"
        "Description: Apache Kafka\n"
    )
    (control / "postinst").write_text(_POSTINST)
    (control / "postinst").chmod(0o755)
    package = repository / f"kafka_{release}-1_all.deb"
    run("dpkg-deb", "--root-owner-group", "-Znone", "--build", root, package)
    return package
