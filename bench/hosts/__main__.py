"""Compares the same roll of real hosts by a shell script and by `kafka-rollout upgrade`, in one run.

    python -m bench.hosts [--rounds 3] [--from 3.9.1] [--to 4.3.1] [--hosts 6]

Both roll the same hosts through SSH, in the order of the plan and with the same gates: one check before a stop, three
consecutive checks one second apart after a start, soak 0. The script (roll.sh) calls `ssh HOST sudo systemctl …`
and checks the same facts with a small program (gate.py). After each roll all hosts get the old release back. The
features are not finalized. A topic of 12 partitions has three replicas of each.

As in bench/roll.py, a roll begins with the first check of the first gate and ends with the last check of the last gate.
The time of the whole command is shown too: `rest` is the tool's start, plan, checks of all hosts, approval and report,
which the script does not have. `checks`: between the gate before a stop and the stop, the tool compares the cluster and
the host with the approved plan again. `connect`: the time of opening connections, which other phases contain. The tool
opens one to each host, the script one for each command (their number times the median of `ssh HOST true`).

Writes bench/results/hosts.json and prints medians with minimum and maximum. Exit code 1 if the goal is missed: the roll
by the tool takes at most 1.3 times as long. Without root or namespaces it prints the reason and measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from kafka_rollout.base.errors import INCOMPLETE
from kafka_rollout.clusters.inventory import dump_cluster, load_cluster
from kafka_rollout.releases.facts import Release
from tests.of_cluster import with_pace
from tools.demo.folder import PROJECT_ROOT
from tools.testbed.bed import Bed, missing, service, up
from tools.testbed.image import LOGIN

GOAL = 1.3
RESULTS = PROJECT_ROOT / "bench" / "results" / "hosts.json"
PHASES = ("gate before", "checks", "stop", "install", "start", "gate after", "rest", "connect")
ROWS = ("command", "roll", *PHASES)
_SUDOERS = f"{LOGIN} ALL=(root) NOPASSWD: " + ", ".join(
    ("/usr/bin/systemctl stop kafka.service", "/usr/bin/systemctl start kafka.service", "/usr/bin/ln -sfn * /opt/kafka")
)
_CALL = "from kafka_rollout.cli.app import main\nmain()\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--from", dest="source", default="3.9.1")
    parser.add_argument("--to", dest="target", default="4.3.1")
    parser.add_argument("--hosts", type=int, default=6)
    arguments = parser.parse_args()
    if why := missing():
        print(f"The roll of hosts is not measured. {why}", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory(prefix="bench-hosts-") as name:
        folder = Path(name)
        releases = Release.parse(arguments.source), Release.parse(arguments.target)
        bed = up(folder / "bed", releases[0], size=arguments.hosts, others=releases[1:])
        try:
            with bed.inside():
                rounds = _rounds(bed, folder, arguments)
        finally:
            bed.down()
    result = {"command": "python -m bench.hosts " + " ".join(sys.argv[1:]), **_summary(rounds), "rounds": rounds}
    RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    return _print(result)


def _rounds(bed: Bed, folder: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    os.environ |= {
        "KAFKA_ROLLOUT_SSH_CONFIG": str(bed.ssh_config),
        "KAFKA_ROLLOUT_CLUSTERS": str(bed.inventory_path.parent),
        "KAFKA_ROLLOUT_HOME": str(folder / "home"),
    }
    timed = with_pace(load_cluster(bed.inventory_path), soak_s=0.0)  # three checks, as the script has
    bed.inventory_path.write_text(dump_cluster(timed))
    for host in bed.hosts:
        host.run("tee", "/etc/sudoers.d/bench", text=f"{_SUDOERS}\n")
    topic = NewTopic("bench", 12, 3, config={"min.insync.replicas": "2"})
    admin = AdminClient({"bootstrap.servers": bed.spec.bootstrap_servers, "log_level": 0})
    admin.create_topics([topic])["bench"].result(60)
    rounds = []
    for number in range(1, arguments.rounds + 1):
        # The order changes with every round, so that caches and temperature do not favour one of them.
        ways = ("script", "tool") if number % 2 else ("tool", "script")
        figures = {way: _measured(bed, folder, way, arguments.target) for way in ways}
        print(f"round {number} of {arguments.rounds}: {figures}", file=sys.stderr)
        rounds.append(figures)
    return rounds


def _measured(bed: Bed, folder: Path, way: str, target: str) -> dict[str, float]:
    """Return the seconds of the whole command and of each phase, for all nodes together; then restore the hosts."""
    order = _order(bed, target)
    installed = bed.hosts[0].run("readlink", "/opt/kafka").strip()
    lines = folder / "lines"
    began = time.monotonic()
    if way == "script":
        words = [str(PROJECT_ROOT / "bench" / "hosts" / "roll.sh"), sys.executable, str(bed.inventory_path)]
        lines.write_text(_call(*words, str(bed.ssh_config), target, *order))
    else:
        policy = ("--pace", "normal", "--no-scan")
        approval = ("--as", "bench", "--reason", "a benchmark", "--yes")
        words = [sys.executable, "-m", "bench.hosts.timed", str(lines), "upgrade", "--cluster", bed.spec.name]
        _call(*words, "--to", target, *policy, *approval)
    command_s = time.monotonic() - began
    spent: dict[str, float] = defaultdict(float)
    for line in lines.read_text().splitlines():
        phase, begin, end = line.rsplit(" ", 2)
        spent[phase] += float(end) - float(begin)
    if way == "script":
        spent["connect"] = 6 * len(order) * _connect_s(bed)  # stop, install, start, three checks
    else:
        spent["checks"] = spent.pop("replace") - spent["stop"] - spent["install"] - spent["start"]
    spent["rest"] = command_s - sum(seconds for phase, seconds in spent.items() if phase != "connect")
    _restore(bed, installed, target)
    total = {"command": command_s, "roll": command_s - spent["rest"]}
    return {name: round(seconds, 2) for name, seconds in {**total, **{phase: spent[phase] for phase in PHASES}}.items()}


def _order(bed: Bed, target: str) -> list[str]:
    """Node ids with their hosts, in the order of the plan."""
    command = [sys.executable, "-c", _CALL, "upgrade", "--cluster", bed.spec.name, "--to", target]
    plan = json.loads(_call(*command, "--dry-run", "--no-scan", "--no-rehearse", "--json"))["plan"]
    (step,) = plan["release_steps"]
    nodes = (bed.spec.node(one["node_id"]) for one in step["order"])
    return [f"{node.node_id}={service(node).host}" for node in nodes]


def _connect_s(bed: Bed) -> float:
    def connect(address: str) -> float:
        began = time.monotonic()
        _call("ssh", "-F", str(bed.ssh_config), address, "true")
        return time.monotonic() - began

    return statistics.median(connect(host.address) for host in bed.hosts)


def _restore(bed: Bed, installed: str, target: str) -> None:
    bed.stop_kafka()
    for host in bed.hosts:
        found = host.run("readlink", "/opt/kafka").strip()
        if not found.endswith(f"-{target}"):
            raise SystemExit(f"{host.name} has {found} instead of {target}.")
        host.run("ln", "-sfn", installed, "/opt/kafka")
    bed.start_kafka()


def _call(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, INCOMPLETE):  # a plan that hides something is one too
        raise SystemExit(f"{words[0]} failed with exit code {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout


def _summary(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    def compared(name: str) -> dict[str, float]:
        return _spread([r["tool"][name] / r["script"][name] for r in rounds])

    return {
        "ratio": compared("roll"),
        "ratio of the commands": compared("command"),
        **{way: {name: _spread([r[way][name] for r in rounds]) for name in ROWS} for way in ("script", "tool")},
        "difference": {name: _spread([r["tool"][name] - r["script"][name] for r in rounds]) for name in ROWS},
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": round(statistics.median(values), 2), "min": round(min(values), 2), "max": round(max(values), 2)}


def _print(result: Mapping[str, Any]) -> int:
    def cell(spread: Mapping[str, float]) -> str:
        return f"{spread['median']:7.2f} ({spread['min']:.2f} to {spread['max']:.2f})".ljust(28)

    columns = ("script", "tool", "difference")
    print(f"{'seconds':12}" + "".join(f"{name:>7}".ljust(28) for name in columns))
    for name in ROWS:
        print(f"{name:12}" + "".join(cell(result[column][name]) for column in columns))
    for name in ("ratio", "ratio of the commands"):
        print(f"{name:22}{cell(result[name])}")
    if result["ratio"]["median"] > GOAL:
        print(f"MISSED: the roll by the tool takes {result['ratio']['median']:.2f} times as long, the goal is {GOAL}.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
