"""Subscribes, and continues at the next node after the last message when one stops or fails."""

import http.client
import json
import logging
import random
import socket
import ssl
import threading
from datetime import datetime, timezone
from typing import Callable, Dict, Iterator, Optional, Sequence, Tuple, Union
from urllib.parse import urlencode, urlsplit

from .messages import Message, Progress, message
from .sse import Event, events

_LOGGER = logging.getLogger("mongostream_streamer")

# The codes with which a node ends a stream that another attempt would not continue.
_FATAL = frozenset(
    ["STRM-SESSION-REPLACED", "STRM-SESSION-FILTER-COSTLY", "STRM-LOG-HISTORY-LOST", "STRM-LOG-AHEAD", "STRM-ACCESS-FORBIDDEN"]
)

Token = Union[str, Callable[[], str], None]


class StreamerError(Exception):
    """A refusal that another attempt does not change. code is one of docs/codes.md; status is that of HTTP, if it came with one."""

    def __init__(self, code: str, text: str, remedy: str, status: Optional[int] = None) -> None:
        super().__init__(": ".join(part for part in (code, text) if part) + (f". {remedy}" if remedy else ""))
        self.code = code
        self.remedy = remedy
        self.status = status


class _Passing(Exception):
    """A failure after which another attempt may help."""


def subscribe(
    addresses: Union[str, Sequence[str]],
    *,
    db: str = "",
    coll: str = "",
    op: Sequence[str] = (),
    filter: str = "",
    subscriber: str = "",
    start: Union[str, datetime] = "",
    on_loss: str = "",
    leaves: bool = False,
    after: str = "",
    token: Token = None,
    silence: float = 45.0,
    progress: bool = False,
    tls: Optional[ssl.SSLContext] = None,
    on_reconnect: Optional[Callable[[Exception], None]] = None,
) -> "Subscription":
    """Subscribes to changes.

    addresses     of nodes, such as "https://streamer-0.example.com:8080". Any node serves everything; the next is tried after a failure.
    db, coll      a database, and a collection of it. Empty: everything that the identity may read.
    op            kinds of change: insert, update, replace, delete, … Empty: all.
    filter        a CEL expression (docs/filters.md).
    subscriber    a durable name: the nodes keep a checkpoint for it, and a later call continues there.
    start         where to begin if neither after nor a checkpoint says: "now" (the default), "earliest", "snapshot", or a time.
    on_loss       "snapshot" brings the documents again after a loss; "notify", the default, only tells it.
    leaves        whether a change "left" comes when a document stops matching.
    after         continues after the message with this id.
    token         a token (docs/access.md), or a function that returns one for each connection, again when one was refused.
    silence       seconds without a byte after which it reconnects; nodes send one every 15 s.
    progress      yields Progress, too, so that a position can be saved although nothing matches.
    tls           the TLS settings of https addresses, if not Python's own.
    on_reconnect  is called before each other attempt, with the reason. Without it, the logger "mongostream_streamer" warns.
    """
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ValueError("start: a time without a time zone")
        start = start.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")
    parameters = {
        "db": db, "coll": coll, "op": ",".join(op), "filter": filter, "subscriber": subscriber, "start": start, "on_loss": on_loss,
        "leaves": "true" if leaves else "",
    }  # fmt: skip
    return Subscription(
        [addresses] if isinstance(addresses, str) else addresses, [(name, value) for name, value in parameters.items() if value],
        after=after, token=token, silence=silence, progress=progress, tls=tls, on_reconnect=on_reconnect,
    )  # fmt: skip


class Subscription:
    """Yields the messages of a subscription in order. Asking for the next one says that the last is done: after a failure of the node or the network it
    continues after that one. A StreamerError ends it where another attempt does not help. close ends it, also from another thread, and the parameter end
    does when everything before that time has come."""

    def __init__(
        self,
        addresses: Sequence[str],
        parameters: Sequence[Tuple[str, str]],
        *,
        after: str = "",
        token: Token = None,
        silence: float = 45.0,
        progress: bool = False,
        tls: Optional[ssl.SSLContext] = None,
        on_reconnect: Optional[Callable[[Exception], None]] = None,
    ) -> None:
        if not addresses:
            raise ValueError("no address")
        self._addresses = [_parsed(address) for address in addresses]
        self._target = "/v1/events" + ("?" + urlencode(parameters) if parameters else "")
        self._ends = any(name == "end" for name, _ in parameters)
        self._token = token
        self._silence = silence
        self._progress = progress
        self._tls = tls
        self._on_reconnect = on_reconnect or _warn
        self._failures = 0
        self._retry: Optional[float] = None  # what a node has asked for, in seconds
        self._refused = False  # the last token was refused
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._socket: Optional[socket.socket] = None
        self._messages = self._run()
        # The id of the last message that is done.
        self.position = after

    def __iter__(self) -> "Subscription":
        return self

    def __next__(self) -> Message:
        return next(self._messages)

    def __enter__(self) -> "Subscription":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the subscription; what waits for a message stops."""
        with self._lock:
            self._closed.set()
            if self._socket is not None:
                try:
                    # Not SSLSocket.shutdown: after that, a read or write of another thread would be in clear text.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
                except OSError:
                    pass  # it has ended already

    def _run(self) -> Iterator[Message]:
        turn = 0
        while not self._closed.is_set():
            try:
                yield from self._connection(*self._addresses[turn % len(self._addresses)])
            except (OSError, http.client.HTTPException, _Passing) as reason:
                if self._closed.is_set():
                    return
                self._on_reconnect(reason)
            turn += 1
            self._failures += 1  # or a planned end: the next address is tried at once in either case
            if self._failures % len(self._addresses) == 0:
                # The other addresses are tried at once; then there is a pause that grows.
                pause = min(30.0, 0.25 * 2 ** min(self._failures // len(self._addresses), 7))
                self._closed.wait((pause if self._retry is None else self._retry) * random.uniform(0.5, 1))
                self._retry = None

    def _connection(self, scheme: str, host: str, port: int, base: str) -> Iterator[Message]:
        """Yields what one connection brings. It returns when the node ends the stream as planned."""
        at = f"{scheme}://{host}:{port}"
        if scheme == "https":
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, timeout=self._silence, context=self._tls)
        else:
            connection = http.client.HTTPConnection(host, port, timeout=self._silence)
        try:
            try:
                connection.connect()
                with self._lock:
                    self._socket = connection.sock
                    if self._closed.is_set():
                        return
                connection.request("GET", base + self._target, headers=self._headers())
                response = connection.getresponse()
            except OSError as error:
                raise _Passing(f"{at}: {error}") from error
            except http.client.BadStatusLine as error:
                raise _Passing(f"{at}: {error}: is this the address of a node's HTTP server, port 8080?") from error
            with response:
                yield from self._answer(at, response)
        finally:
            with self._lock:
                self._socket = None
            connection.close()

    def _answer(self, at: str, response: http.client.HTTPResponse) -> Iterator[Message]:
        if response.status == 204 and self._ends:  # the position is at the end already
            self._closed.set()
            return
        if response.status != 200 or not response.headers.get("Content-Type", "").startswith("text/event-stream"):
            self._refusal(response)
        self._refused = False
        try:
            for event in events(lambda: response.read1(1 << 16)):
                if self._closed.is_set():  # what has arrived before is not asked for any more
                    return
                yield from self._message(event)
        except ValueError as error:  # no event stream
            raise _Passing(f"{at}: {error}") from error

    def _headers(self) -> Dict[str, str]:
        headers = {"Accept": "*/*", "Cache-Control": "no-store"}  # who asks for an event stream is told of refusals in one
        if self.position:
            headers["Last-Event-ID"] = self.position
        if self._token is not None:
            token = (self._token if isinstance(self._token, str) else self._token()).strip()  # files end with a newline
            if not (token.isascii() and token.isprintable()):
                raise ValueError("the token has characters other than printable ASCII")  # http.client would show it
            headers["Authorization"] = "Bearer " + token
        return headers

    def _message(self, event: Event) -> Iterator[Message]:
        """Yields the message of an event, if it has one. What the loop does with it is not ours to catch."""
        if event.retry is not None:
            self._retry = event.retry
        if event.data is None or event.kind == "end":
            if event.id:
                self._failures = 0
                if self._progress:
                    yield Progress(event.id)
                self.position = event.id
            if event.kind == "end":  # all before it has come: another attempt would bring nothing
                self._closed.set()
            return
        if event.kind in ("error", "unavailable"):
            error = _told(event.data)
            if error.code in _FATAL or (error.code == "STRM-ACCESS-UNAUTHENTICATED" and self._token is None):
                raise error
            raise _Passing(str(error))  # another attempt may help
        self._failures = 0
        yield message(event.kind, event.id or "", event.data)
        if event.id:  # the loop has asked for more: it is done with this one
            self.position = event.id

    def _refusal(self, response: http.client.HTTPResponse) -> None:
        """Raises a StreamerError where another attempt does not help."""
        error = _told(response.read(1 << 20).decode("utf-8", "replace"), response.status)
        after = response.headers.get("Retry-After", "")
        if after.isascii() and after.isdigit():
            self._retry = float(after)
        if response.status == 401 and callable(self._token) and not self._refused:
            self._refused = True  # once more with another token
            raise _Passing(str(error))
        if response.status >= 500 or response.status in (200, 408, 429):
            raise _Passing(str(error))
        raise error


def _warn(reason: Exception) -> None:
    """Says why a connection is opened again where nobody else listens."""
    _LOGGER.warning("reconnecting: %s", reason)


def _told(text: str, status: Optional[int] = None) -> StreamerError:
    """Reads a refusal. One without a code is not of a node: of a proxy, perhaps."""
    try:
        told = json.loads(text)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        told = {}
    return StreamerError(str(told.get("code", "")), str(told.get("message", f"HTTP status {status}")), str(told.get("remedy", "")), status)


def _parsed(address: str) -> Tuple[str, str, int, str]:
    """Takes an address apart. It raises a ValueError where it is none: another attempt would not help."""
    try:
        url = urlsplit(address)
        if url.scheme in ("http", "https") and url.hostname and not url.query and not url.fragment and url.username is None:
            return url.scheme, url.hostname, url.port or (443 if url.scheme == "https" else 80), url.path.rstrip("/")
    except ValueError:
        pass  # a port that is none
    raise ValueError(f"invalid address {address!r}: write it as http://127.0.0.1:8080, or https://…")
