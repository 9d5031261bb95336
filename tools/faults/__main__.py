"""python -m tools.faults [run|summary]

Runs upgrades, rollbacks, feature changes and downgrades with traffic while faults happen, and compares what is stored.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tools.faults import isolation
from tools.faults.kinds import FACTS, HOSTS, LOCAL, RUNTIMES, Kind, kinds_of
from tools.faults.records import read_lines
from tools.faults.summary import summary

RESULTS = Path(__file__).resolve().parents[2] / ".faults"
INTERRUPTED = 130
_ONE_REQUEST_S = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    if given.command == "summary":
        print(summary(read_lines(given.files)))
        return 0
    return _run(given)


def _parser() -> argparse.ArgumentParser:
    kinds = "\n".join(f"  {kind:22s}{facts.text} ({', '.join(facts.runtimes)})" for kind, facts in FACTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tools.faults",
        description=str(__doc__).split("\n\n")[1],
        epilog=f"kinds of faults:\n{kinds}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run", help="run a campaign", epilog=parser.epilog, formatter_class=parser.formatter_class
    )
    run.add_argument("--minutes", type=float, default=10.0, help="no run begins later (default: 10)")
    run.add_argument("--seed", type=int, default=1, help="the same seed plans the same runs and faults (default: 1)")
    run.add_argument("--runtime", choices=RUNTIMES, default=LOCAL, help="local processes or hosts of the test bed")
    run.add_argument("--faults", type=int, help="end after this number of faults")
    run.add_argument("--kinds", nargs="+", type=Kind, choices=list(Kind), metavar="KIND", help="only these kinds")
    run.add_argument("--density", type=float, default=0.8, help="faults for each moment of a run (default: 0.8)")
    run.add_argument("--first-round", type=int, default=1, help="begin with this round of the seed (default: 1)")
    run.add_argument("--stuck-after", type=float, default=360, metavar="S", help="seconds without progress and fault")
    run.add_argument("--results", type=Path, default=RESULTS, help="folder of the record, the logs and the summary")
    add = commands.add_parser("summary", help="summarize the records of campaigns")
    add.add_argument("files", nargs="+", type=Path)
    return parser


def _run(given: argparse.Namespace) -> int:
    asked = threading.Event()
    asked_at = 0.0

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal asked_at
        if asked.is_set():
            # make, timeout and a terminal may each pass on the signal of one request.
            if time.monotonic() - asked_at > _ONE_REQUEST_S:
                raise KeyboardInterrupt
            return
        asked_at = time.monotonic()
        asked.set()
        print("Ending the campaign: faults are ended and the cluster is removed.", file=sys.stderr, flush=True)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, on_signal)
    why = isolation.missing_for_isolation() if given.runtime == LOCAL else ""
    possible = set(kinds_of(given.runtime, isolated=not why))
    if given.runtime == LOCAL and not isolation.missing_for_isolation():
        isolation.enter()
    if given.runtime == HOSTS:
        from tools.testbed.bed import missing

        if obstacle := missing():
            print(obstacle, file=sys.stderr)
            return 1
    from tools.faults.campaign import Campaign

    campaign = Campaign(
        seed=given.seed,
        runtime=given.runtime,
        kinds=[kind for kind in Kind if kind in possible and kind in (given.kinds or list(Kind))],
        density=given.density,
        minutes=given.minutes,
        at_most=given.faults,
        results=given.results,
        first_round=given.first_round,
        isolated=given.runtime == LOCAL and not isolation.missing_for_isolation(),
        left_out=why,
        stuck_s=given.stuck_after,
        stop_asked=asked.is_set,
    )
    failures = campaign.run()
    text = summary(campaign.record.lines)
    campaign.record.path.with_suffix(".md").write_text(text + "\n")
    print(text)
    print(f"record: {campaign.record.path}", file=sys.stderr)
    if asked.is_set():
        return INTERRUPTED
    return 1 if failures else 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
