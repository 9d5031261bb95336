"""Who is at the shell: what is recorded with every answer that is given there."""

from __future__ import annotations

import os
import pwd
import socket

from kafka_rollout.domain.run.responder import Channel, Responder


def shell_responder() -> Responder:
    """The operating system's user of this process and the host's name; no environment variable is asked.

    The channel proves no more than that: a name that is given with `--approve-as` is claimed by this user.
    """
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container's user without an entry
        user = str(os.getuid())
    return Responder(channel=Channel.SHELL, user=user, host=socket.gethostname())
