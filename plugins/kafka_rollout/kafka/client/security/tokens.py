"""Tokens for SASL OAUTHBEARER from a token server: the client credentials grant (RFC 6749, section 4.4).

librdkafka requests its tokens itself (sasl.oauthbearer.method=oidc). This provider does the same for kafka-python.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from functools import lru_cache
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

from kafka_rollout.base.errors import RefusedError, TransientError

_TIMEOUT_S = 10.0
_USED_PART = 0.8  # of a token's lifetime; then a new one is requested
_DEFAULT_LIFETIME_S = 300.0


@lru_cache(maxsize=16)
def token_provider(
    url: str, client_id: str, client_secret: str, scope: str | None = None, ca_location: str | None = None
) -> TokenProvider:
    """Return the provider of this process for a client, so that all connections use the same token."""
    return TokenProvider(url, client_id, client_secret, scope, ca_location)


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """Requests a token, and keeps it for 80 % of its lifetime. Safe to use from several threads."""

    def __init__(
        self, url: str, client_id: str, client_secret: str, scope: str | None, ca_location: str | None
    ) -> None:
        self._url = url
        self._client_id = client_id
        # Not URL-encoded, as in librdkafka and by default in Kafka (sasl.oauthbearer.header.urlencode).
        self._authorization = f"Basic {base64.b64encode(f'{client_id}:{client_secret}'.encode()).decode()}"
        self._form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}
        self._ca_location = ca_location
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at = 0.0

    def token(self) -> str:
        """Return a token that is valid. Raises RefusedError if the server refuses the client, else TransientError."""
        with self._lock:
            if time.monotonic() >= self._renew_at:
                answer = self._request()
                lifetime_s = float(answer.get("expires_in") or _DEFAULT_LIFETIME_S)
                self._token = str(answer["access_token"])
                self._renew_at = time.monotonic() + _USED_PART * lifetime_s
            return self._token

    def _request(self) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 — the URL is http or https (ClientSecurity.token_url)
            self._url,
            data=urllib.parse.urlencode(self._form).encode(),
            headers={"Authorization": self._authorization, "Accept": "application/json"},
        )
        try:
            context = ssl.create_default_context(cafile=self._ca_location) if self._url.startswith("https") else None
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=context) as response:  # noqa: S310
                answer = json.load(response)
            if not isinstance(answer, dict) or not answer.get("access_token"):
                raise ValueError("the response has no access_token")
            return answer
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise RefusedError(
                    f"The token server {self._url} refused client {self._client_id} (HTTP {error.code}).",
                    remedy="Check the client id, its secret and the scope in the cluster's Connection.",
                ) from None
            raise self._unavailable(f"HTTP {error.code}") from None
        except (OSError, ValueError) as error:
            raise self._unavailable(str(getattr(error, "reason", error))) from None

    def _unavailable(self, why: str) -> TransientError:
        return TransientError(
            f"The token server {self._url} did not issue a token: {why}.",
            remedy="Check sasl.oauthbearer.token.endpoint.url and https.ca.location, and that the server runs.",
        )
