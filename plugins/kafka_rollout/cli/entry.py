"""The command `kafka-rollout` of the wheel, which exists also where only the consumer is installed."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, or name the extra that contains its packages."""
    try:
        from kafka_rollout.cli import app
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("kafka_rollout"):
            raise
        print(
            f"error: The command line needs the package {error.name}, which is not installed."
            ' Install the extra cli: pip install "kafka-rollout[cli]".',
            file=sys.stderr,
        )
        sys.exit(2)
    app.main()
