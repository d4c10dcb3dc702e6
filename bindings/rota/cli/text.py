"""How names, keys and figures are printed, and how a message becomes JSON.

1. Whatever bytes a key or name holds, what is printed is one line of printable characters: the rest is
   escaped, and so is the backslash, so two different names never look alike.
2. In JSON, bytes that are UTF-8 are a string; others are an object {"base64": "..."}.
"""

from __future__ import annotations

import base64
import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rota

SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def printable(value: bytes | str, limit: int | None = None) -> str:
    """Return bytes or text on one line, escaped, and cut to `limit` characters with an ellipsis."""
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value
    # Longer than this it is cut anyway; escapes only make it longer.
    text = text if limit is None else text[: limit + 1]
    escaped = "".join(map(escape, text)) if not text.isprintable() or "\\" in text else text
    if limit is not None and len(escaped) > limit:
        return escaped[: limit - 1] + "…"
    return escaped


def escape(character: str) -> str:
    """Return a character as it is printed; an undecodable byte as \\xff, a lone surrogate as \\ud800."""
    if character in SHORT:
        return SHORT[character]
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def as_json(value: Any) -> Any:
    """Return a key, body or header value in a form that JSON can hold without a loss."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}
    return value


def json_line(value: Any) -> str:
    """Return a value as one line of ASCII, so that lone surrogates, which UTF-8 refuses, are escaped."""
    return json.dumps(value, separators=(",", ":"))


def message_record(message: rota.Message) -> dict[str, Any]:
    """Return a message as the object that `--format json` prints."""
    return {
        "id": message.id,
        "key": as_json(message.key),
        "headers": {name: as_json(value) for name, value in (message.headers or {}).items()},
        "priority": message.priority,
        "attempts": message.attempts,
        "enqueued_at": message.enqueued_at,
        "body": as_json(message.body),
    }


def byte_figure(count: float) -> str:
    """Return a number of bytes for a person: 0 B, 1.5 KiB, 310 MiB."""
    for unit in UNITS:
        if abs(count) < 1024 or unit == UNITS[-1]:
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"


def duration_figure(seconds: float) -> str:
    """Return a time span for a person: 12 µs, 3.4 ms, 5.0 s, 3 m 20 s, 2 h 5 m, 3 d 4 h."""
    if seconds < 0:
        return "-" + duration_figure(-seconds)
    if seconds < 1:
        return f"{seconds * 1e6:.0f} µs" if seconds < 0.001 else f"{seconds * 1000:.1f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} m"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def age_figure(instant: float | None) -> str:
    """Return how long ago an instant was, or a dash for none."""
    return "-" if instant is None else duration_figure(max(0.0, time.time() - instant))


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: 1 message, 12,000 messages."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"


def rate_figure(count: float, seconds: float) -> str:
    """Return a rate for a person, or nothing when no time has passed."""
    return f"{count / seconds:,.0f} a second" if seconds > 0 else "at once"
