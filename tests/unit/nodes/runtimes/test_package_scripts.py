"""The scripts of packages as dpkg and rpm show them, and what a plan says of them before the stop."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kafka_rollout.model.package_managers import print_scripts
from kafka_rollout.planning.findings.package_scripts import package_script_findings
from kafka_rollout.releases.facts import Release
from tests.fakes.host import FakeHost
from tests.unit.nodes.runtimes.test_packages import NODE, R421, R431, host_with, runtime_on

LINES = "chown cp-kafka:confluent /data # of the package"
SCRIPTS = (
    f"package kafka\nscript postinst of kafka\ntext #!/bin/sh\ntext {LINES}\ntext chown root /var/lib/other\nwhole\n"
)


def findings(host: FakeHost, release: Release = R431) -> list[tuple[str, str, tuple[str, ...]]]:
    state = runtime_on(host).host(NODE, [release])
    return [(one.subject, one.severity.value, one.covers) for one in package_script_findings(NODE, state)]


def test_lines_of_the_new_and_of_the_installed_package_are_shown_before_the_stop() -> None:
    lines = (
        "postinst of kafka 4.3.1: chown cp-kafka:confluent /data",
        "postinst of kafka, installed: chown cp-kafka:confluent /data",
    )
    assert findings(host_with(scripts=SCRIPTS)) == [("node 1", "warning", lines)]
    assert findings(host_with(scripts=SCRIPTS.replace("cp-kafka:confluent /data", "kafka: /data"))) == []
    assert findings(host_with(scripts=SCRIPTS), R421) == [], "nothing is installed"


@pytest.mark.parametrize("shown", ["", "package kafka\n", "whole\n"])
def test_scripts_that_a_host_does_not_show_are_unknown(shown: str) -> None:
    unread = ("the installed package", "the package of 4.3.1")
    assert findings(host_with(scripts=shown)) == [("node 1, unread scripts", "warning", unread)]


def test_dpkg_shows_the_scripts_of_a_package(tmp_path: Path) -> None:
    control = tmp_path / "deb/DEBIAN"
    control.mkdir(parents=True)
    (control / "control").write_text(
        "Package: kafka\nVersion: 4.3.1-1\nArchitecture: all\nMaintainer: k <k@example.com>\nDescription: x\n"
    )
    (control / "postinst").write_text("#!/bin/sh\nchown root /var/lib/kafka\n")
    (control / "postinst").chmod(0o755)
    package = tmp_path / "kafka_4.3.1-1_all.deb"
    subprocess.run(["dpkg-deb", "-Znone", "--build", tmp_path / "deb", package], check=True, capture_output=True)
    shown = _run(
        print_scripts(("/usr/bin/apt-get", "install", f"{tmp_path}/kafka_{{version}}-1_all.deb"), "4.3.1", "k"),
        tmp_path,
    )
    assert shown == [
        *("package kafka", "script preinst of kafka", "script postinst of kafka", "text #!/bin/sh"),
        *("text chown root /var/lib/kafka", "script prerm of kafka", "script postrm of kafka", "whole"),
    ]
    package.write_bytes(b"x")
    assert "whole" not in _run(
        print_scripts(("apt-get", "install", str(package).replace("4.3.1", "{version}")), "4.3.1", "k"), tmp_path
    )


RPM = """#!/bin/sh
case " $* " in *" -p "*) test -f "$(eval echo "\\${$#}")" || exit 1;; esac
case " $* " in
*" --scripts "*) printf 'postinstall scriptlet (using /bin/sh):\\nchmod 700 /data\\n';;
*FILEMODES*) printf 'drwxr-x--- root:root /data\\n-rw-r--r-- root:root /usr/x\\n';;
*) printf kafka;; esac
"""


@pytest.mark.parametrize("is_cached", [True, False])
def test_rpm_shows_the_scripts_and_folders_of_what_dnf_has_loaded(tmp_path: Path, *, is_cached: bool) -> None:
    """With programs of this test in their place: this machine has none of them."""
    cache = tmp_path / "cache"
    cache.mkdir()
    for name, text in {"rpm": RPM.replace(" -p ", " -qp "), "dnf": "#!/bin/sh\nexit 1\n"}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    if is_cached:
        (cache / "kafka-4.3.1-1.noarch.rpm").touch()
    line = print_scripts((f"{tmp_path}/dnf", "install", "-y", "kafka-0:{version}-1"), "4.3.1", "k")
    shown = _run(line.replace("/var/cache/dnf", str(cache)), tmp_path)
    expected = [
        *("package kafka", "script scriptlets of kafka", "text postinstall scriptlet (using /bin/sh):"),
        *("text chmod 700 /data", "script folders of kafka", "text drwxr-x--- root:root /data", "whole"),
    ]
    assert shown == expected if is_cached else "whole" not in shown


def _run(line: str, folder: Path) -> list[str]:
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, cwd=folder, env=env, check=False
    ).stdout.splitlines()
