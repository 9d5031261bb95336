"""A notifier that posts JSON to a webhook: Microsoft Teams, or any other service without a notifier of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from airflow.sdk import BaseHook, BaseNotifier, Context

from kafka_rollout.airflow.delivery_errors import OF_SERVICE
from kafka_rollout.base.errors import RefusedError, TransientError, UserError

_TIMEOUT_S, _WHOLE_RESPONSE_S = 10.0, 30.0
_MOST_MIB = 1


class WebhookNotifier(BaseNotifier):
    """Post `payload` as JSON. Redirects are not followed, and the response is not read beyond a limit.

    `conn_id`: an Airflow Connection. If the URL is a secret (Teams), it is the password, and the host is empty.
    Otherwise the host is the URL, and a password is sent as `Authorization: Bearer`. `payload`: a JSON object; its
    texts are templates.
    """

    template_fields: Sequence[str] = ("payload",)

    def __init__(self, *, conn_id: str, payload: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.payload = payload

    def notify(self, context: Context) -> None:
        """Raises TransientError if the service does not respond, and RefusedError if it refuses the message. No error
        contains the URL."""
        import httpx

        from kafka_rollout.base.system.http import http_client, text_of

        url, headers = self._target()
        try:
            with http_client(url, timeout_s=_TIMEOUT_S, proxied=True) as client:
                request = client.build_request("POST", url, json=self.payload, headers=headers)
                answer, _ = text_of(client, request, most_mib=_MOST_MIB, within_s=_WHOLE_RESPONSE_S)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise TransientError(
                f"The webhook of Airflow Connection {self.conn_id} did not respond ({type(error).__name__}).",
                remedy="Check the URL in the Connection, the proxy and the firewall of the worker.",
            ) from None
        if not answer.is_success:
            is_of_message = answer.is_client_error and answer.status_code not in OF_SERVICE
            raise (RefusedError if is_of_message else TransientError)(
                f"The webhook of Airflow Connection {self.conn_id} answered with status {answer.status_code}.",
                remedy="Check the URL in the Connection, and the payload.",
            )

    def _target(self) -> tuple[str, dict[str, str]]:
        found = BaseHook.get_connection(self.conn_id)
        secret = found.password or ""
        url = found.host or secret
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.netloc:
            raise UserError(
                f"Airflow Connection {self.conn_id} has no URL of a webhook.",
                remedy="Write the URL with https:// into the password if it is a secret, else into the host.",
            )
        headers = {"Authorization": f"Bearer {secret}"} if found.host and secret else {}
        return url, headers
