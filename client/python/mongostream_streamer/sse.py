"""Reads event streams (WHATWG HTML, section 9.2)."""

from dataclasses import dataclass
from typing import Callable, Iterator, List, Optional

# What one event may take: the largest change is 16 MB of BSON, and at most twelve times as much JSON.
MAX_EVENT = 256 << 20


@dataclass
class Event:
    """A field group of the stream. data is None where only the id moved on."""

    id: Optional[str] = None
    kind: str = "message"
    data: Optional[str] = None
    retry: Optional[float] = None


def events(read: Callable[[], bytes]) -> Iterator[Event]:
    """Yields the events of a stream. read returns what has arrived, and nothing at its end; an event that is cut off is dropped."""
    event, data, size = Event(), [], 0  # type: Event, List[str], int
    for line in _lines(read):
        size += len(line)
        if size > MAX_EVENT:
            raise ValueError("an event of the stream is too large")
        if line:
            _take(event, data, line.decode("utf-8", "replace"))
            continue
        if data:
            event.data = "\n".join(data)
        if event.id is not None or event.data is not None or event.retry is not None:
            yield event
        event, data, size = Event(), [], 0


def _lines(read: Callable[[], bytes]) -> Iterator[bytes]:
    pending: List[bytes] = []  # pieces of a line that has not ended
    size = 0
    while True:
        piece = read()
        if not piece:
            return
        *ended, rest = piece.split(b"\n")
        for line in ended:
            line = b"".join(pending) + line
            pending, size = [], 0
            yield line[:-1] if line.endswith(b"\r") else line
        if rest:
            pending.append(rest)
            size += len(rest)
            if size > MAX_EVENT:
                raise ValueError("an event of the stream is too large")


def _take(event: Event, data: List[str], line: str) -> None:
    name, _, value = line.partition(":")
    if value.startswith(" "):
        value = value[1:]
    if name == "id" and "\0" not in value:
        event.id = value
    elif name == "event":
        event.kind = value
    elif name == "data":
        data.append(value)
    elif name == "retry" and value.isascii() and value.isdigit():
        event.retry = int(value) / 1000
