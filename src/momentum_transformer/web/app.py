"""The page, its models, what they make and how runs go, over HTTP; nothing to ask for names a file."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from .clients import client_of
from .guard import Guard
from .messages import (
    MAX_BYTES,
    MAX_CHARACTERS,
    MAX_MODELS,
    MAX_REFINEMENTS,
    MAX_TOKENS,
    BadRequestError,
    parse_draw_request,
    parse_translate_request,
    parse_write_request,
)
from .messages import Request as Asked
from .page_models import describe
from .studio import BusyError, Place, Studio
from .training_view import Watch

STALL_SECONDS = 30.0  # to take one line of an answer
STATIC = {
    "/": ("index.html", "text/html"),
    "/style.css": ("style.css", "text/css"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/page.js": ("page.js", "text/javascript"),
    "/stream.js": ("stream.js", "text/javascript"),
    "/choices.js": ("choices.js", "text/javascript"),
    "/pictures.js": ("pictures.js", "text/javascript"),
    "/translation.js": ("translation.js", "text/javascript"),
    "/text.js": ("text.js", "text/javascript"),
    "/training.js": ("training.js", "text/javascript"),
    "/curves.js": ("curves.js", "text/javascript"),
    "/written.js": ("written.js", "text/javascript"),
    "/draft.js": ("draft.js", "text/javascript"),
    "/sketch.js": ("sketch.js", "text/javascript"),
    "/card.js": ("card.js", "text/javascript"),
    "/weights.js": ("weights.js", "text/javascript"),
}


def create_app(
    studio: Studio, watch: Watch | None = None, *, host_names: tuple[str, ...] = (), token: str | None = None
) -> Starlette:
    """The application; `host_names` are names of this server besides localhost and plain addresses."""
    bounds = {
        "most_models": MAX_MODELS,
        "most_refinements": MAX_REFINEMENTS,
        "most_characters": MAX_CHARACTERS,
        "most_tokens": MAX_TOKENS,
    }
    description = json.dumps({**describe(studio.models, studio.translators, studio.writers), **bounds}).encode()
    watch = watch or Watch([])

    async def models(request: Request) -> Response:
        return Response(description, media_type="application/json")

    async def training(request: Request) -> Response:
        content = await asyncio.to_thread(watch.answer)
        tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type="application/json", headers=headers)

    async def draw(request: Request) -> Response | ASGIApp:
        return await answer(request, lambda message: parse_draw_request(message, studio.models))

    async def translate(request: Request) -> Response | ASGIApp:
        return await answer(request, lambda message: parse_translate_request(message, studio.translators))

    async def write(request: Request) -> Response | ASGIApp:
        return await answer(request, lambda message: parse_write_request(message, studio.writers))

    async def answer(request: Request, parse: Callable[[bytes], Asked]) -> Response | ASGIApp:
        try:
            return Answer(studio, parse(await _message(request)))
        except BadRequestError as error:
            return _refusal(400, str(error))
        except ClientDisconnect:
            return Response(status_code=400)

    routes = [Route(path, _static(*file)) for path, file in STATIC.items()]
    routes += [Route("/models", models), Route("/training", training)]
    posts = {"/draw": draw, "/translate": translate, "/write": write}
    routes += [Route(path, post, methods=["POST"]) for path, post in posts.items()]
    return Starlette(routes=routes, middleware=[Middleware(Guard, host_names=host_names, token=token)])


class Answer:
    """An answer of JSON lines, written as they are made; the making stops when the viewer leaves."""

    def __init__(self, studio: Studio, request: Asked) -> None:
        self._studio = studio
        self._request = request

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._studio.admit(self._request.viewer, client_of(scope)) as place:
                await self._answer(place, receive, send)
        except BusyError as error:
            await _refusal(503, str(error))(scope, receive, send)

    async def _answer(self, place: Place, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        writing = asyncio.create_task(self._write(place, send))
        leaving = asyncio.create_task(_leave(receive))
        try:
            waited: set[asyncio.Future[Any]] = {writing, leaving, place.ended}
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            writing.cancel()
            leaving.cancel()
            results = await asyncio.gather(writing, leaving, return_exceptions=True)
        if isinstance(results[0], TimeoutError):
            return  # the viewer does not read: the connection is closed before its end
        if place.ended.done():
            await _send_line(send, {"stopped": place.ended.result()})
        elif isinstance(results[0], Exception):
            raise results[0]
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, place: Place, send: Send) -> None:
        async with aclosing(self._studio.events(self._request, place)) as events:
            async for event in events:
                await _send_line(send, event)


async def _send_line(send: Send, event: dict[str, Any]) -> None:
    line = json.dumps(event, allow_nan=False).encode() + b"\n"
    async with asyncio.timeout(STALL_SECONDS):
        await send({"type": "http.response.body", "body": line, "more_body": True})


async def _leave(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _message(request: Request) -> bytes:
    """The body, if it is JSON and not too long."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise BadRequestError("the message must be sent as application/json")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BYTES:
            raise BadRequestError(f"the message must be at most {MAX_BYTES} bytes long")
    return bytes(body)


def _refusal(status: int, reason: str) -> Response:
    return JSONResponse({"error": reason}, status)


def _static(name: str, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    """A file of the page, read once when the server starts."""
    content = files(__package__).joinpath("static", name).read_bytes()

    async def answer(request: Request) -> Response:
        return Response(content, media_type=media_type, headers={"cache-control": "no-cache"})

    return answer
