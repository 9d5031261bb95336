"""The image of the Dockerfile, built and started without a Docker engine.

Its base is not Airflow's official image, which only a container registry has. A bare Debian stands in for it, with what
the Dockerfile uses of it: Python 3.11, uv, an environment that the user airflow (50000) owns, and that user.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

pytestmark = [pytest.mark.full, pytest.mark.timeout(3600)]
ENVIRONMENT = "/opt/venv"
PREPARE = f"""set -e
update-ca-certificates >/dev/null 2>&1
useradd --uid 50000 --gid 0 --home-dir /opt/airflow --create-home airflow
python3 -m venv --without-pip {ENVIRONMENT}
chown -R airflow {ENVIRONMENT}
"""
CA = "/etc/ssl/certs/ca-certificates.crt"
# Prints one line of JSON about the installation, as Airflow sees it.
LOOK = """
import json
from airflow.configuration import conf
from airflow.dag_processing.dagbag import DagBag
from airflow.plugins_manager import get_import_errors, get_plugin_info
from airflow.providers_manager import ProvidersManager
from importlib.metadata import version
bag = DagBag(conf.get("core", "dags_folder"))
print(json.dumps({
    "version": version("kafka-rollout"), "dags": sorted(bag.dags), "errors": bag.import_errors,
    "plugins": [one["name"] for one in get_plugin_info()], "plugin_errors": get_import_errors(),
    "providers": sorted(ProvidersManager().providers),
}))
"""

Buildah = Callable[..., str]


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Buildah]:
    """buildah(1) with a storage of its own; it isolates with chroot(2), so it needs no engine and no cgroups."""
    assert shutil.which("buildah"), "There is no buildah. Run: apt-get install buildah debootstrap"
    folder = tmp_path_factory.mktemp("storage")
    options = ("--root", folder / "root", "--runroot", folder / "run", "--storage-driver", "vfs")

    def call(*command: str | Path, within_s: float = 1800) -> str:
        words = [str(word) for word in ("buildah", *options, *command)]
        variables = {**os.environ, "BUILDAH_ISOLATION": "chroot"}
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=within_s, env=variables)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    try:
        yield call
    finally:
        call("rm", "--all")
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def base(buildah: Buildah, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of the stand-in, as the Dockerfile names its base."""
    folder = tmp_path_factory.mktemp("debian") / "root"
    sources = "".join(path.read_text() for path in Path("/etc/apt").rglob("*.sources"))
    mirrors = [line.split()[1] for line in sources.splitlines() if line.startswith("URIs:")]
    packages = "--include=ca-certificates,python3,python3-venv,procps"
    command = ["debootstrap", "--variant=minbase", packages, "bookworm", str(folder), *mirrors[:1]]
    subprocess.run(command, check=True, capture_output=True, timeout=1200)
    shutil.copytree(
        "/usr/local/share/ca-certificates", folder / "usr" / "local" / "share" / "ca-certificates", dirs_exist_ok=True
    )
    uv = shutil.which("uv", path=str(ROOT / ".venv" / "bin"))
    assert uv is not None
    shutil.copy(uv, folder / "usr" / "local" / "bin" / "uv")
    subprocess.run(["chroot", str(folder), "/bin/sh", "-c", PREPARE], check=True, capture_output=True, timeout=300)
    found = re.search("^FROM (.+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert found
    name = buildah("from", "scratch").strip()
    archive = folder.with_suffix(".tar")  # a folder would lose its owners
    subprocess.run(["tar", "-C", str(folder), "-cf", str(archive), "."], check=True, timeout=300)
    buildah("add", "--quiet", name, archive, "/")
    for setting in (
        f"VIRTUAL_ENV={ENVIRONMENT}",
        f"PATH={ENVIRONMENT}/bin:/usr/local/bin:/usr/bin:/bin",
        f"SSL_CERT_FILE={CA}",
    ):
        buildah("config", "--env", setting, name)
    buildah("config", "--user", "airflow", "--workingdir", "/opt/airflow", "--env", "AIRFLOW_HOME=/opt/airflow", name)
    buildah("commit", "--quiet", "--rm", name, f"docker.io/{found[1]}")
    shutil.rmtree(folder)
    archive.unlink()
    return found[1]


def test_the_image_builds_and_airflow_loads_the_dags_of_a_mounted_inventory(
    buildah: Buildah, base: str, tmp_path: Path
) -> None:
    context = tmp_path / "context"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(context)], check=True, timeout=120)
    # The package index of this machine; a build elsewhere has its own.
    index = subprocess.run(
        [ROOT / ".venv" / "bin" / "python", "-m", "pip", "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    ).stdout.strip()
    mirror = ("--env", f"UV_DEFAULT_INDEX={index}") if index else ()
    buildah("build", "--quiet", "--pull=never", "--network=host", *mirror, "--tag", "kafka-rollout", context)
    clusters = tmp_path / "clusters"
    clusters.mkdir()
    shutil.copy(ROOT / "include" / "clusters" / "local.yaml", clusters)
    container = buildah("from", "--pull=never", "kafka-rollout").strip()
    mount = ("--volume", f"{clusters}:/opt/kafka-rollout/include/clusters:ro")
    found = json.loads(buildah("run", *mount, container, "--", "python", "-c", LOOK).splitlines()[-1])
    assert found["errors"] == {}
    assert {"kafka_upgrade_local", "kafka_downgrade_local", "kafka_features_local"} <= set(found["dags"])
    assert found["plugins"].count("kafka_rollout") == 1
    assert found["plugin_errors"] == {}
    assert "kafka-rollout" in found["providers"]
    assert "local" in buildah("run", *mount, container, "--", "kafka-rollout", "fleet")
    assert buildah("run", container, "--", "kafka-rollout", "--version").split()[1] == found["version"]
    # The folders of the volumes: a new volume gets their owner.
    volumes = 'stat -c "%U %a" "$KAFKA_ROLLOUT_HOME" "$KAFKA_ROLLOUT_CACHE"'
    assert buildah("run", container, "--", "sh", "-c", volumes).splitlines() == ["airflow 770"] * 2
    # A task cannot change the DAG files and facts, which root owns.
    owners = buildah(
        "run", container, "--", "sh", "-c", "id -un; stat -c %U /opt/kafka-rollout/dags /opt/kafka-rollout"
    )
    assert owners.split() == ["airflow", "root", "root"]
