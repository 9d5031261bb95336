"""The command `kafka-rollout` as an operator calls it: one process at a time, which faults can hit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

import psutil

from kafka_rollout.base.system.files import write_whole
from kafka_rollout.base.system.sessions import wait_for_exit
from tools.demo.folder import PROJECT_ROOT
from tools.faults.world import NotPossibleError

# The clock of the command is the machine's, plus the seconds in a file.
_ENTRY = """
import sys, time
from pathlib import Path
real, shift = time.time, Path(sys.argv.pop(1))
time.time = lambda: real() + float(shift.read_text())
from kafka_rollout.cli.app import main
main()
"""
_END_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that ended. `output`: standard error and output; `signals`: it was killed by a fault."""

    words: tuple[str, ...]
    code: int
    output: str

    @property
    def last_line(self) -> str:
        lines = [line for line in self.output.splitlines() if line.strip()]
        return lines[-1] if lines else ""


@dataclass(slots=True, kw_only=True)
class Tool:
    """`home`: the tool's home folder, by which its background processes are found. `log`: output of all calls."""

    home: Path
    environment: Mapping[str, str]
    log: Path
    calls: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _words: tuple[str, ...] = ()
    _from: int = 0
    _lock: Lock = field(default_factory=Lock)

    @property
    def clock(self) -> Path:
        return self.home / "clock"

    def turn_clock(self, seconds: int) -> None:
        """Set how far the clock of the commands differs from the machine's."""
        write_whole(self.clock, f"{seconds}".encode(), mode=0o644)

    def start(self, words: Sequence[str]) -> None:
        self.calls += 1
        if not self.clock.exists():
            self.turn_clock(0)
        self._words = tuple(words)
        with self.log.open("ab") as log:
            log.write(f"\n$ kafka-rollout {' '.join(words)}\n".encode())
            log.flush()
            self._from = log.tell()
            process = subprocess.Popen(
                [sys.executable, "-c", _ENTRY, str(self.clock), *words],
                env={
                    **os.environ,
                    **self.environment,
                    "KAFKA_ROLLOUT_HOME": str(self.home),
                    "KAFKA_ROLLOUT_REHEARSE": "0",
                    "PYTHONPATH": str(PROJECT_ROOT / "plugins"),
                    "COLUMNS": "200",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        with self._lock:
            self._process = process

    def ended(self) -> Call | None:
        """Return the call if it has ended."""
        process = self._process
        if process is None or process.poll() is None:
            return None
        with self._lock:
            self._process = None
        text = self.log.read_bytes()[self._from :].decode(errors="replace")
        return Call(words=self._words, code=process.returncode, output=text)

    @property
    def written(self) -> int:
        """Bytes that the calls have printed."""
        return self.log.stat().st_size if self.log.exists() else 0

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the command. Raises NotPossibleError if none runs."""
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                raise NotPossibleError("No command runs.")
            process.send_signal(number)

    def end(self) -> None:
        """Kill the command and every background process of its home."""
        with suppress(NotPossibleError):
            self.send(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(_END_S)
        left = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("KAFKA_ROLLOUT_HOME") == str(self.home) and process.pid != os.getpid():
                    process.kill()
                    left.append(process)
        wait_for_exit(left, _END_S)
