"""What a subscription yields."""

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Union

from .extjson import loads


@dataclass(frozen=True)
class Change:
    """One change of a document, as MongoDB reports it. event is MongoDB's change event with the fields key and partition of Streamer; text is the same as it arrived."""

    id: str
    text: str = field(repr=False)
    event: Dict[str, Any]

    @property
    def operation(self) -> str:
        """insert, update, replace, delete, …; left if a document matches no longer."""
        return str(self.event.get("operationType", ""))

    @property
    def key(self) -> Optional[str]:
        """The _id as text, the same for all _ids that MongoDB considers equal. Events of a whole collection have none."""
        return self.event.get("key")

    @property
    def partition(self) -> Optional[int]:
        return self.event.get("partition")

    @property
    def namespace(self) -> str:
        """db.coll, or the database alone."""
        ns = self.event.get("ns") or {}
        return ".".join(ns[part] for part in ("db", "coll") if ns.get(part))

    @property
    def document_id(self) -> Any:
        return (self.event.get("documentKey") or {}).get("_id")

    @property
    def document(self) -> Optional[Dict[str, Any]]:
        """The document after the change, if the event has it. Updates have it with mongodb.full_document, deletes never."""
        return self.event.get("fullDocument")


@dataclass(frozen=True)
class Loss:
    """A Loss bounds what may have been missed. It comes in its place among the changes. data has lost_from, lost_to, found, advice, …"""

    id: str
    reason: str
    namespaces: List[str]
    data: Dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class SnapshotMark:
    """How far a snapshot is: state is begun, done or cancelled."""

    id: str
    state: str
    read: int
    data: Dict[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Notice:
    """Tells something about the service."""

    id: str
    kind: str
    data: Any


@dataclass(frozen=True)
class Progress:
    """The position moved without a message: nothing before it matches. It comes only if it was asked for."""

    id: str


Message = Union[Change, Loss, SnapshotMark, Notice, Progress]


def message(kind: str, position: str, text: str) -> Message:
    """Turns an event of the stream into a message."""
    if kind == "message":
        return Change(position, text, loads(text))
    data = loads(text)
    if kind == "snapshot":
        return SnapshotMark(position, data.get("state", ""), data.get("read", 0), data)
    if isinstance(data, dict) and "lost_to" in data:
        return Loss(position, data.get("reason", ""), data.get("namespaces") or [], data)
    return Notice(position, kind, data)
