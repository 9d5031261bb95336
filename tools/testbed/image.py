"""The base image of all hosts: Debian with systemd, sshd, sudo and Java, built once and kept in the cache folder."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kafka_rollout.base.system.settings import Settings
from tools.testbed.machine import TestbedError, run

SUITE = "bookworm"
PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "openssh-server",
    "sudo",
    "iproute2",
    "procps",
    "nftables",
    "ca-certificates",
    "openjdk-17-jre-headless",
)
KAFKA, LOGIN = "kafka", "rollout"  # users: of the brokers, and of the tool
_BUILD_S = 1200.0
_SETUP = f"""set -e
useradd --system --no-create-home --shell /usr/sbin/nologin {KAFKA}
useradd --create-home --shell /bin/bash --groups systemd-journal --password '*' {LOGIN}
rm -f /etc/ssh/ssh_host_*
systemctl mask --quiet apt-daily.timer apt-daily-upgrade.timer getty.target console-getty.service
printf 'PasswordAuthentication no\\nPermitRootLogin no\\nUsePAM no\\n' > /etc/ssh/sshd_config.d/testbed.conf
mkdir -p /run/sshd
rm -rf /var/cache/apt /var/lib/apt/lists /usr/share/doc /usr/share/man /usr/share/locale
"""


def base_image() -> Path:
    """Folder of the image in the cache; it exists if the image was built."""
    recipe = hashlib.sha256("\n".join([SUITE, *PACKAGES, _SETUP]).encode()).hexdigest()
    return Settings.from_environment().cache / "testbed" / f"{SUITE}-{recipe[:8]}"


def build_image() -> Path:
    """Build the image unless it is cached; return its folder. It appears whole, by one rename."""
    image = base_image()
    if image.is_dir():
        return image
    image.parent.mkdir(parents=True, exist_ok=True)
    with _exclusive(image.parent / ".lock"):
        if image.is_dir():
            return image
        for stale in image.parent.glob(".draft-*"):
            shutil.rmtree(stale, ignore_errors=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=image.parent))
        began = time.monotonic()
        print("test bed: building the base image, which takes 1 to 4 minutes", file=sys.stderr, flush=True)
        try:
            packages = f"--include={','.join(PACKAGES)}"
            run("debootstrap", "--variant=minbase", packages, SUITE, draft, within_s=_BUILD_S)
            run("chroot", draft, "/bin/sh", text=_SETUP)
            draft.chmod(0o755)
            draft.rename(image)
        except TestbedError as error:
            raise TestbedError(f"The base image of the test bed cannot be built. {error}") from None
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        print(f"test bed: image built in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return image


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
