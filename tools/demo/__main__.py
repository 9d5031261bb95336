"""`python -m tools.demo`, which `make demo` calls."""

from __future__ import annotations

import sys

from kafka_rollout.base.errors import RolloutError
from tools.demo.run import main

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except RolloutError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
