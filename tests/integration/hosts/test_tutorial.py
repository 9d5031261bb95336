"""The tutorial, command by command, on hosts that nobody prepared for it: only the names of the hosts are replaced."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.testbeds import MakeBed

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(1800)]
RIGHTS = "/etc/sudoers.d/zz-kafka-rollout"


def test_every_command_of_the_tutorial_runs_as_written(make_bed: MakeBed, tmp_path: Path) -> None:
    bed = make_bed("3.9.1", others=("4.3.1",), size=3)
    for host in bed.hosts:
        host.run("rm", "-f", *host.run("sh", "-c", "ls /etc/sudoers.d/*rollout* || true").split())
    install, *blocks = re.findall(
        r"^```\n(.*?)^```$", (ROOT / "docs" / "tutorial.md").read_text(), re.MULTILINE | re.DOTALL
    )
    assert "pip install" in install  # tests/packaging installs it; here is the environment of the tests
    assert len(blocks) == 8
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "KAFKA_ROLLOUT_HOME": str(tmp_path / "home"),
    }
    said = []
    for block in blocks:
        # One shell session: the exported variables of a block hold in the next one.
        (tmp_path / "session.sh").open("a").write("".join(re.findall(r"^export .*\n", block, re.MULTILINE)))
        text = block.replace("kafka-1:", f"{bed.hosts[0].address}:")
        done = subprocess.run(
            ["bash", "-euc", f". ./session.sh\n{text}"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=1200,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        said.append(done.stdout)
        if "sudoers.txt" in block:
            rights = (tmp_path / "sudoers.txt").read_text()
            for host in bed.hosts:
                host.run("sh", "-c", f"umask 0337; cat > {RIGHTS}", text=rights)
                host.run("visudo", "-c")
    assert (tmp_path / "check.html").read_text().count("<html") == 1
    releases = {host.run("readlink", "/opt/kafka").strip() for host in bed.hosts}
    assert releases == {"/opt/kafka_2.13-4.3.1"}
    assert "metadata.version" in said[-1] + said[-2]
