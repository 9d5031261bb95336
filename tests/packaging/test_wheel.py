"""The wheel: its files, its entry points, and the consumer where kafka-python is all that is installed."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
from airflow.providers_manager import _create_provider_info_schema_validator

from kafka_rollout.airflow.provider import get_provider_info
from tests.paths import ROOT

SOURCES = ("pyproject.toml", "setup.py", "LICENSE", "README.md", "plugins", "spark_jobs", "include")
IMPORT = """
import sys
sys.path.insert(0, sys.argv[1])
from kafka_rollout.clients.dynamic_consumer import DynamicProtocolConsumer
print(sorted({name.split(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"__main__"}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files as they lie in site-packages."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in SOURCES:
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=ignore)
        else:
            shutil.copy(ROOT / name, source / name)
    build = "from setuptools.build_meta import build_wheel; import sys; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(out)], cwd=source, check=True, capture_output=True, timeout=600)
    (wheel,) = out.glob("*.whl")
    with ZipFile(wheel) as files:
        files.extractall(out / "site")
    return out / "site"


def test_the_wheel_has_every_data_file_of_the_packages_and_of_include(installed: Path) -> None:
    data = {path.relative_to(ROOT / "include") for path in (ROOT / "include").rglob("*") if path.is_file()}
    wanted = {Path("kafka_rollout/data") / path for path in data}
    for folder in ("plugins", "spark_jobs"):
        tracked = subprocess.run(
            ["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split()
        wanted |= {Path(name).relative_to(folder) for name in tracked if len(Path(name).parts) > 2}
    missing = sorted(str(path) for path in wanted if not (installed / path).is_file())
    assert len(wanted) > 500
    assert missing == []


def test_the_wheel_has_the_licence_and_the_entry_points(installed: Path) -> None:
    (about,) = installed.glob("*.dist-info")
    assert "Apache License" in (about / "licenses" / "LICENSE").read_text()
    entries = configparser.ConfigParser()
    entries.read(about / "entry_points.txt")
    assert set(entries.sections()) == {"console_scripts", "airflow.plugins", "apache_airflow_provider"}
    needs = [line for line in (about / "METADATA").read_text().splitlines() if line.startswith("Requires-Dist")]
    assert [line for line in needs if "extra ==" not in line] == ["Requires-Dist: kafka-python<3.1,>=3.0.12"]


def test_the_consumer_needs_kafka_python_and_nothing_else(installed: Path) -> None:
    spec = find_spec("kafka")
    assert spec is not None
    assert spec.origin is not None
    if not (installed / "kafka").exists():
        (installed / "kafka").symlink_to(Path(spec.origin).parent)
    # -S: without the site-packages of this environment; -E: without its variables.
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", IMPORT, str(installed)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "['kafka', 'kafka_rollout']", done.stderr


def test_the_command_without_its_packages_names_the_extra(installed: Path) -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); from kafka_rollout.cli.entry import main; main()"
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-c", code, str(installed)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "error: The command line needs the package typer, which is not installed."
        ' Install the extra cli: pip install "kafka-rollout[cli]".'
    ]


def test_an_installed_package_reads_its_own_data_and_inventories_of_the_home_folder(installed: Path) -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from kafka_rollout.base.system.settings import Settings; "
        "found = Settings.from_environment(); print(found.include, found.clusters, sep='|')"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(installed)],
        capture_output=True,
        text=True,
        timeout=120,
        env={"KAFKA_ROLLOUT_HOME": str(installed / "home")},
        check=True,
    )
    assert done.stdout.strip() == f"{installed}/kafka_rollout/data|{installed}/home/clusters"


def test_airflow_accepts_the_provider_and_its_hook_has_the_connection_type() -> None:
    info = get_provider_info()
    _create_provider_info_schema_validator().validate(info)
    (connection,) = info["connection-types"]
    module, _, name = connection["hook-class-name"].rpartition(".")
    hook = getattr(__import__(module, fromlist=[name]), name)
    assert hook.conn_type == connection["connection-type"]
