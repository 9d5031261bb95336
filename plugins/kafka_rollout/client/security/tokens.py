"""Tokens for OAUTHBEARER."""

from __future__ import annotations

import base64
import math
import re
import threading
import time
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import httpx
from kafka.net.sasl.oauth import AbstractTokenProvider

from kafka_rollout.base.errors import CredentialsError, RolloutError, TransientError
from kafka_rollout.base.json_forms import parse_json
from kafka_rollout.base.system.files import check_readable
from kafka_rollout.base.system.http import can_pass, http_client, text_of
from kafka_rollout.base.system.tls import trusting
from kafka_rollout.client.security.client_security import split_extensions

_TIMEOUT_S, _WHOLE_RESPONSE_S = 10.0, 20.0
_MOST_MIB = 1
_USED_PART = 0.8  # of a token's lifetime; then a new one is requested
_DEFAULT_LIFETIME_S = 300.0
_LONGEST_S = 86_400.0  # a token is renewed at least once a day
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1, as Kafka's OAuthBearerClientInitialResponse

_E = TypeVar("_E", bound=RolloutError)


@dataclass(frozen=True, slots=True)
class TokenClient:
    """A client of a token server, by its settings."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    ca_location: str | None = None
    extensions: str | None = None
    """Of SASL, as `name=value` with commas."""


@lru_cache(maxsize=16)
def token_provider(client: TokenClient) -> TokenProvider:
    """Return the provider of this process for a client, so that all connections use the same token."""
    return TokenProvider(client)


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """Requests a token, and keeps it for 80 % of its lifetime. Safe to use from several threads.

    The client credentials grant (RFC 6749, section 4.4), as librdkafka does it itself (sasl.oauthbearer.method=oidc).
    """

    def __init__(self, client: TokenClient) -> None:
        self._extensions = split_extensions(client.extensions) if client.extensions else {}
        self._url = client.url
        self._client_id = client.client_id
        # Not URL-encoded, as in librdkafka and by default in Kafka (sasl.oauthbearer.header.urlencode).
        secret = f"{client.client_id}:{client.client_secret}"
        self._authorization = f"Basic {base64.b64encode(secret.encode()).decode()}"
        self._form = {"grant_type": "client_credentials", **({"scope": client.scope} if client.scope else {})}
        self._ca_location = client.ca_location
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at = 0.0

    def token(self) -> str:
        """Return a token that is valid.

        Raises CredentialsError if the server refuses the client, else TransientError.
        """
        with self._lock:
            if time.monotonic() >= self._renew_at:
                try:
                    self._token, lifetime_s = read_token(self._request())
                except (OSError, ValueError, httpx.HTTPError, httpx.InvalidURL) as error:
                    why = f"{error}".partition("\n")[0] or type(error).__name__
                    raise self._not_issued(TransientError if can_pass(error) else CredentialsError, why) from None
                self._renew_at = time.monotonic() + _USED_PART * lifetime_s
            return self._token

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions that the client sends with each token."""
        return dict(self._extensions)

    def _request(self) -> str:
        """Return the body of the response. Raises OSError, ValueError or httpx's errors without a usable one."""
        if self._ca_location is not None:
            check_readable(Path(self._ca_location))
        verify = trusting(self._ca_location) if self._url.startswith("https") else True
        with http_client(self._url, timeout_s=_TIMEOUT_S, verify=verify, proxied=True) as client:
            headers = {"Authorization": self._authorization, "Accept": "application/json"}
            request = client.build_request("POST", self._url, data=self._form, headers=headers)
            answer, body = text_of(client, request, most_mib=_MOST_MIB, within_s=_WHOLE_RESPONSE_S)
        status = answer.status_code
        if answer.is_redirect:
            raise CredentialsError(
                f"The token server {self._url} redirects the request (HTTP {status}). The client's secret is not sent "
                "to another address.",
                remedy="Set the final URL as sasl.oauthbearer.token.endpoint.url.",
            )
        if status == httpx.codes.TOO_MANY_REQUESTS or status >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise self._not_issued(TransientError, f"HTTP {status}")
        if not answer.is_success:
            raise CredentialsError(
                f"The token server {self._url} refused client {self._client_id} (HTTP {status}).",
                remedy="Check the client id, its secret and the scope in the cluster's Connection.",
            )
        return body

    def _not_issued(self, kind: type[_E], why: str) -> _E:
        return kind(
            f"The token server {self._url} did not issue a token: {why}.",
            remedy="Check sasl.oauthbearer.token.endpoint.url and https.ca.location, and that the server runs.",
        )


def read_token(body: str) -> tuple[str, float]:
    """Return the token of a response (RFC 6749, section 5.1) and its lifetime in seconds. Raises ValueError.

    The error does not contain the token. A lifetime is a number, or a number as text, as some servers send it.
    """
    try:
        answer: Any = parse_json(body)
    except ValueError:
        raise ValueError("the response is not JSON") from None
    token = answer.get("access_token") if isinstance(answer, dict) else None
    if not token:
        raise ValueError("the response has no access_token")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ValueError("the access_token of the response is not a bearer token")
    given = answer.get("expires_in")
    if given is None:
        return token, _DEFAULT_LIFETIME_S
    try:
        if isinstance(given, bool) or not isinstance(given, int | float | str):
            raise ValueError
        lifetime_s = float(given)
    except (ValueError, OverflowError):
        lifetime_s = math.nan
    if not 0 < lifetime_s < math.inf:
        raise ValueError("expires_in of the response is not a number of seconds above 0")
    return token, min(lifetime_s, _LONGEST_S)
