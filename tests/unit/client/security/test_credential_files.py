"""Files with credentials are removed, also those of killed processes."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
from pathlib import Path

from pydantic import SecretStr

from kafka_rollout.client.security.carried_security import credentials_file, remove_stale_files
from kafka_rollout.client.security.client_security import ClientSecurity
from tests.paths import ROOT

SECURITY = ClientSecurity(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="anna", password=SecretStr("hush"))
_HOLDS = """
import sys, time
from pathlib import Path
from kafka_rollout.client.security.carried_security import credentials_file
from kafka_rollout.client.security.client_security import ClientSecurity
with credentials_file(Path(sys.argv[1]), ClientSecurity()):
    print("ready", flush=True)
    time.sleep(600)
"""


def files(home: Path) -> list[Path]:
    return [path for path in (home / "private").rglob("*") if path.is_file()]


def test_a_file_is_readable_by_its_owner_only_and_is_removed_at_the_end(tmp_path: Path) -> None:
    with credentials_file(tmp_path, SECURITY) as path:
        assert path is not None
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert ClientSecurity.from_file(path) == SECURITY
        assert all(stat.S_IMODE(folder.stat().st_mode) == 0o700 for folder in (path.parent, path.parent.parent))
    assert files(tmp_path) == []
    with credentials_file(tmp_path, None) as path:
        assert path is None


def test_the_file_of_a_killed_process_is_removed_and_that_of_a_running_one_stays(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _HOLDS, str(tmp_path)]
    options = {"PYTHONPATH": str(ROOT / "plugins")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=options) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"ready\n"
            left = files(tmp_path)
            assert len(left) == 1
            remove_stale_files(tmp_path)
            assert files(tmp_path) == left
        finally:
            holder.send_signal(signal.SIGKILL)
    remove_stale_files(tmp_path)
    assert files(tmp_path) == []
