"""A notifier that posts JSON to a webhook: Microsoft Teams, or any other service without a notifier of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import BaseHook, BaseNotifier, Context

from kafka_rollout.airflow.delivery_errors import OF_SERVICE
from kafka_rollout.base.errors import RefusedError, TransientError, UserError

_TIMEOUT_S, _WHOLE_RESPONSE_S = 10.0, 30.0
_MOST_MIB = 1


class WebhookNotifier(BaseNotifier):
    """Post `payload` as JSON. Redirects are not followed, and the response is not read beyond a limit.

    `conn_id`: an Airflow Connection of type HTTP, read as that of Prometheus (`HttpAccess`). If the URL is a secret
    (Teams), it is the password, and the host is empty. `payload`: a JSON object; its texts are templates.
    """

    template_fields: Sequence[str] = ("payload",)

    def __init__(self, *, conn_id: str, payload: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        self.payload = payload

    def notify(self, context: Context) -> None:
        """Raises TransientError if the service does not respond, RefusedError if it refuses the message, and UserError
        for a Connection that cannot be used. No error contains the URL."""
        import httpx

        from kafka_rollout.base.system.http import http_client, text_of
        from kafka_rollout.client.security.client_security import HttpAccess

        access = HttpAccess.from_airflow_connection(BaseHook.get_connection(self.conn_id), can_be_password=True)
        try:
            verify = access.tls()
        except OSError:
            raise UserError(
                f"The CA file of Airflow Connection {self.conn_id} cannot be used.",
                remedy="Correct its path and its contents on the worker.",
            ) from None
        try:
            with http_client(
                access.url,
                timeout_s=_TIMEOUT_S,
                verify=verify,
                auth=access.basic,
                headers=access.sent_headers,
                proxied=True,
            ) as client:
                request = client.build_request("POST", access.url, json=self.payload)
                answer, _ = text_of(client, request, most_mib=_MOST_MIB, within_s=_WHOLE_RESPONSE_S)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise TransientError(
                f"The webhook of Airflow Connection {self.conn_id} did not respond ({type(error).__name__}).",
                remedy="Check the URL and the CA file in the Connection, and the proxy and the firewall of the worker.",
            ) from None
        if not answer.is_success:
            is_of_message = answer.is_client_error and answer.status_code not in OF_SERVICE
            raise (RefusedError if is_of_message else TransientError)(
                f"The webhook of Airflow Connection {self.conn_id} answered with status {answer.status_code}.",
                remedy="Check the URL in the Connection, and the payload.",
            )
