"""Who may talk to the server: pages that it served itself, reached by a name that is its own, and who has the link.

Another web site in the same browser sends its own Origin. A site whose name was pointed at this machine (DNS
rebinding) sends its own Host; plain addresses cannot be pointed elsewhere, so they are all allowed.

Where others than this machine can reach the server, the link that it prints holds a token. Who comes by it gets a
cookie, and nobody else gets anything. No client may fill all places of viewers: one address has a share of them, and a
request takes one when all of it has come.
"""

import ipaddress
import secrets
from collections import Counter
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .clients import client_of
from .messages import MAX_BYTES

TOKEN = "token"  # the name in the link
COOKIE = "momentum-token"
REQUESTS_PER_CLIENT = 256  # at a time
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


class Guard:
    """Refuses foreign requests, and adds the headers that confine the page to every answer."""

    def __init__(self, app: ASGIApp, host_names: tuple[str, ...] = (), token: str | None = None) -> None:
        self._app = app
        self._token = token
        self._requests: Counter[str] = Counter()  # that are being answered, by address
        self._names = {"localhost", *(name.lower() for name in host_names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_confined(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        client = client_of(scope)
        headers = Headers(scope=scope)
        answer: ASGIApp | None = self._refusal(headers) or self._entrance(scope, headers)
        if answer is None:
            receive = await _arrived(receive)
            answer = self._full(client) or self._app
        self._requests[client] += 1
        try:
            await answer(scope, receive, send_confined)
        finally:
            self._requests[client] -= 1
            self._requests += Counter()  # forgets who has none

    def _entrance(self, scope: Scope, headers: Headers) -> Response | None:
        """None where the request may pass; a redirect with a cookie where it has the link's token; else a refusal."""
        if self._token is None:
            return None
        if self._is_token(_cookie(headers)):
            return None
        try:
            asked = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=8).get(TOKEN, [])
        except ValueError:  # more of them
            asked = []
        if scope["path"] != "/" or not asked or not self._is_token(asked[0]):
            return PlainTextResponse("this page needs the whole link that the server printed, with its token\n", 401)
        entered = RedirectResponse("/", 303)
        entered.set_cookie(COOKIE, self._token, httponly=True, samesite="strict")
        return entered

    def _is_token(self, given: str) -> bool:
        return self._token is not None and secrets.compare_digest(given.encode(), self._token.encode())

    def _full(self, client: str) -> Response | None:
        if self._requests[client] < REQUESTS_PER_CLIENT:
            return None
        return PlainTextResponse(f"{REQUESTS_PER_CLIENT} requests of your address are being answered already\n", 503)

    def _refusal(self, headers: Headers) -> Response | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return PlainTextResponse("this server is not the one you named\n", 421)
        own = {f"{scheme}://{hosts[0].lower()}" for scheme in ("http", "https")}
        if any(origin.lower() not in own for origin in headers.getlist("origin")):
            return PlainTextResponse("another site may not use this server\n", 403)
        return None

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
            if name in self._names:
                return True
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


async def _arrived(receive: Receive) -> Receive:
    """Wait for a whole request, or for more than any may have; what then gives it out again."""
    body, last = bytearray(), await receive()
    body += last.get("body", b"")
    while last.get("more_body") and len(body) <= MAX_BYTES:
        last = await receive()
        body += last.get("body", b"")
    came: list[Message] = [{**last, "body": bytes(body)}]

    async def again() -> Message:
        return came.pop() if came else await receive()

    return again


def _cookie(headers: Headers) -> str:
    """The token that a browser sends back."""
    try:
        found = SimpleCookie("; ".join(headers.getlist("cookie"))).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value
