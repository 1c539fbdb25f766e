"""Subscribes to MongoDB changes served by Streamer, over server-sent events. Standard library only."""

from .extjson import ObjectId, dumps, loads
from .messages import Change, Loss, Message, Notice, Progress, SnapshotMark
from .subscription import StreamerError, Subscription, subscribe

__all__ = [
    "Change", "Loss", "Message", "Notice", "ObjectId", "Progress", "SnapshotMark", "StreamerError", "Subscription", "dumps", "loads", "subscribe",
]
