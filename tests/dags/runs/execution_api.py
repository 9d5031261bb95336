"""Airflow's execution API in this process, without what it does again for each request of a task.

Requests, endpoints, their sessions and answers are Airflow's own. Two things took more than a third of the processor
time of a run here: Airflow replaces dependencies of the application, so FastAPI describes all of them again for each
request; and each request passes about ten times from one thread to another. The rendered fields of a task, which only
Airflow's own page of the task shows, are not stored.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import httpx
import pytest
from fastapi.dependencies import utils as dependencies

if TYPE_CHECKING:
    from fastapi import FastAPI
    from fastapi.dependencies.models import Dependant
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.types import Receive, Scope, Send


@contextmanager
def quick_execution_api() -> Iterator[None]:
    from airflow.api_fastapi.execution_api import app as app_module
    from airflow.sdk.api.client import TaskInstanceOperations
    from airflow.sdk.execution_time.comms import OKResponse
    from airflow.sdk.execution_time.supervisor import in_process_api_server

    in_process_api_server.cache_clear()  # the end of an earlier transport, at any time, ends its application
    api = in_process_api_server()
    with pytest.MonkeyPatch.context() as patch, _Transport.open(api.app) as transport:
        # Afterwards: while the application is created, each version of the API changes the descriptions.
        patch.setattr(dependencies, "get_dependant", _describe_once(dependencies.get_dependant))
        # These add a task and two streams to each request, for headers that no request has here.
        for middleware in (app_module.CorrelationIdMiddleware, app_module.JWTReissueMiddleware):
            patch.setattr(middleware, "__call__", _pass_on)
        patch.setattr(TaskInstanceOperations, "set_rtif", lambda *_: OKResponse(ok=True))
        api.transport = transport
        yield
        in_process_api_server.cache_clear()


async def _pass_on(middleware: BaseHTTPMiddleware, scope: Scope, receive: Receive, send: Send) -> None:
    await middleware.app(scope, receive, send)


def _describe_once(describe: Callable[..., Dependant]) -> Callable[..., Dependant]:
    known: dict[object, Dependant] = {}

    def described(*, call: Callable[..., Any], **options: Any) -> Dependant:
        if getattr(call, "__name__", "") == "<lambda>":  # made for one task
            return describe(call=call, **options)
        # By identity: the function of one version of the API equals that of another. The description holds it.
        key = (id(call), repr(sorted(options.items())))
        if key not in known:
            known[key] = describe(call=call, **options)
        return known[key]

    return described


class _Transport(httpx.BaseTransport):
    """Runs the application's coroutines and endpoints in one other thread: database sessions are of a thread."""

    def __init__(self, app: FastAPI) -> None:
        self._app = httpx.ASGITransport(app=app)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="execution-api", daemon=True)

    @classmethod
    @contextmanager
    def open(cls, app: FastAPI) -> Iterator[_Transport]:
        found = cls(app)
        in_worker = anyio.to_thread.run_sync

        async def in_this_thread(function: Callable[..., Any], *values: Any, **options: Any) -> Any:
            if threading.current_thread() is found._thread:
                return function(*values)
            return await in_worker(function, *values, **options)

        found._thread.start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(anyio.to_thread, "run_sync", in_this_thread)
            lifespan = app.router.lifespan_context(app)
            asyncio.run_coroutine_threadsafe(lifespan.__aenter__(), found._loop).result()
            yield found
            asyncio.run_coroutine_threadsafe(lifespan.__aexit__(None, None, None), found._loop).result()
        found._loop.call_soon_threadsafe(found._loop.stop)
        found._thread.join()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        return asyncio.run_coroutine_threadsafe(self._answer(request), self._loop).result()

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        response = await self._app.handle_async_request(request)
        content = await response.aread()
        return httpx.Response(response.status_code, headers=response.headers, content=content)
