"""Whether the error of a notifier is of its service, or of the one message that it was to send."""

from __future__ import annotations

import smtplib
from collections.abc import Iterator

from kafka_rollout.base.errors import TransientError
from kafka_rollout.base.system.http import can_pass

# Status codes of a service that would refuse every other message too.
OF_SERVICE = frozenset({401, 403, 404, 407, 408, 429})
_OF_MESSAGE = (smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError, smtplib.SMTPSenderRefused)


def is_of_channel(error: BaseException) -> bool:
    """Return whether the service of a channel did not respond, or would refuse every other message too."""
    for one in _chain(error):
        if isinstance(one, _OF_MESSAGE):
            return False
        response = getattr(one, "response", None)
        status = getattr(response, "status_code", getattr(one, "code", None))  # `code`: of urllib
        if isinstance(status, int) and status >= 400:
            return status >= 500 or status in OF_SERVICE
        if isinstance(one, TransientError | OSError) or can_pass(one):
            return True
    return False


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or one.__context__
