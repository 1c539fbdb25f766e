"""Extended JSON v2 without the loss of a digit."""

import json
import math
import re
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Dict

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_INTEGER = re.compile(r"-?\d+\Z", re.ASCII)
_DATE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6}))?Z\Z", re.ASCII)


class ObjectId(str):
    """A MongoDB ObjectId, as 24 hexadecimal digits."""

    def __new__(cls, text: str) -> "ObjectId":
        if not re.match(r"[0-9a-fA-F]{24}\Z", text):
            raise ValueError(f"not an ObjectId: {text!r}")
        return super().__new__(cls, text.lower())

    def __repr__(self) -> str:
        return f"ObjectId({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectId) and str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((ObjectId, str(self)))


def loads(text: str) -> Any:
    """Reads relaxed or canonical Extended JSON. Integers become int, doubles float, $numberDecimal Decimal, which keeps every digit, $oid ObjectId, and $date
    datetime. Other types, and dates before the year 1 or after 9999, stay the dicts that they are in Extended JSON."""
    return json.loads(text, object_hook=_revive)


def dumps(value: Any) -> str:
    """Writes a value as Extended JSON from which loads makes an equal value. Times keep their milliseconds, as in MongoDB."""
    return json.dumps(_plain(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def _revive(fields: Dict[str, Any]) -> Any:
    if len(fields) != 1:
        return fields
    ((name, value),) = fields.items()
    if name == "$date":
        return _date(value, fields)
    if not isinstance(value, str):
        return fields
    try:
        if name == "$oid":
            return ObjectId(value)
        if name in ("$numberInt", "$numberLong"):
            return int(value) if _INTEGER.match(value) else fields
        if name == "$numberDouble":
            return float(value)
        if name == "$numberDecimal":
            return Decimal(value)
    except (ValueError, ArithmeticError):
        pass  # a document that only looks so
    return fields


def _date(value: Any, otherwise: Any) -> Any:
    """Returns a datetime where Python has one for the time; MongoDB's reach further."""
    try:
        if isinstance(value, int) and not isinstance(value, bool):  # the milliseconds of $numberLong
            return _EPOCH + timedelta(milliseconds=value)
        match = _DATE.match(value) if isinstance(value, str) else None
        if match is None:
            return otherwise
        whole = datetime.fromisoformat(match[1]).replace(tzinfo=timezone.utc)
        return whole + timedelta(microseconds=int((match[2] or "0").ljust(6, "0")))
    except (ValueError, OverflowError):
        return otherwise


def _plain(value: Any) -> Any:
    if isinstance(value, ObjectId):
        return {"$oid": str(value)}
    if isinstance(value, Decimal):
        return {"$numberDecimal": str(value)}
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError("a datetime without a time zone")
        return {"$date": {"$numberLong": str((value - _EPOCH) // timedelta(milliseconds=1))}}
    if isinstance(value, float) and not math.isfinite(value):
        return {"$numberDouble": "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        raise ValueError(f"{value} is no integer of MongoDB")
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value
