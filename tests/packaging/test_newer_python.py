"""The checkout with a newer Python: a bare Debian of the release that has it, the lock, and the fast tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = [pytest.mark.full, pytest.mark.timeout(3600)]
SUITE, VERSION = "trixie", "3.13"
PACKAGES = "ca-certificates,python3,python3-venv,make,git,curl,procps"
COMMANDS = """set -e
update-ca-certificates >/dev/null 2>&1
ip link set lo up 2>/dev/null || true
cd /checkout
make setup PYTHON=python3
.venv/bin/python -V
.venv/bin/python -m pytest -q -n 2 -p no:cacheprovider \
  -m 'not (jvm or airflow or spark or integration or browser or full)' \
  tests/unit tests/architecture tests/packaging/test_wheel.py
echo "passed"  # so that the shell stays the first process, which has to wait for orphans
"""


@pytest.fixture
def debian(tmp_path: Path) -> Iterator[Path]:
    """The root of a bare Debian with the committed state of this checkout in /checkout."""
    folder = tmp_path / "debian"
    sources = "".join(path.read_text() for path in Path("/etc/apt").rglob("*.sources"))
    mirrors = [line.split()[1] for line in sources.splitlines() if line.startswith("URIs:")]
    call("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, folder, *mirrors[:1])
    for name in ("resolv.conf", "hosts", "pip.conf"):  # the network and the package index of this machine
        if Path("/etc", name).exists():
            shutil.copy(Path("/etc", name), folder / "etc")
    certificates = folder / "usr" / "local" / "share" / "ca-certificates"
    shutil.copytree("/usr/local/share/ca-certificates", certificates, dirs_exist_ok=True)
    call("git", "clone", "--quiet", ROOT, folder / "checkout")
    call("mount", "--bind", "/dev", folder / "dev")
    try:
        yield folder
    finally:
        call("umount", "--lazy", folder / "dev")
        shutil.rmtree(folder)


def call(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=1200)


def test_the_fast_tests_pass_with_a_newer_python(debian: Path) -> None:
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    variables = {
        "PATH": os.defpath + ":/usr/sbin:/sbin",
        "HOME": "/checkout",
        "LANG": "C.UTF-8",
        "PIP_CERT": bundle,
        "SSL_CERT_FILE": bundle,
        "REQUESTS_CA_BUNDLE": bundle,
    }
    alone = ("unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={debian}/proc", "chroot", debian)
    done = subprocess.run(
        [*alone, "/bin/bash", "-c", COMMANDS], env=variables, check=False, capture_output=True, text=True, timeout=3000
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert f"\nPython {VERSION}." in done.stdout
