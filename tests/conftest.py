"""Settings of all tests."""

import logging
import signal

from hypothesis import settings

from tests.leftovers import pytest_unconfigure  # noqa: F401 (a hook)

# These machines are small and noisy: how long an example takes says nothing about the code.
settings.register_profile("noisy machine", deadline=None)
settings.load_profile("noisy machine")

# py4j takes leave of the JVM when Python ends, into a stream that pytest has closed by then.
logging.getLogger("py4j").setLevel(logging.WARNING)

# A shell has what it starts in the background ignore Ctrl-C, and so would all that tests start and then interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
