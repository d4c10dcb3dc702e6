"""Attributes of a message: key, headers, due time, expiry and what requests carry, to bytes and back.

What holds: nothing is ever unpickled; a value has one of five types, each with its own mark; unknown attributes are
passed over, so that a newer version may add some.
"""

import struct

from libc.stdint cimport uint64_t

from engine.format cimport *

_HEAD = struct.Struct("<BBH")
_HEADER = struct.Struct("<BBHI")
_U64 = struct.Struct("<Q")
_FLOAT = struct.Struct("<d")
_WINDOW = struct.Struct("<QI")
_BYTES, _TEXT, _INTEGER, _FLOATING, _BOOLEAN = range(1, 6)
_LIMIT = 65535 - 12  # a copy adds the time of the first put
_FAR = 3e9  # about a century


def _attribute(int kind, bytes value):
    if len(value) > _LIMIT - 4:
        raise ValueError(f"a key or the headers together may have {_LIMIT - 4} bytes, not {len(value)}")
    return _HEAD.pack(kind, 0, len(value)) + value


def encode_value(name, value):
    """(kind, bytes) of a header's value.  Raises TypeError."""
    if isinstance(value, bool):
        return _BOOLEAN, b"\1" if value else b"\0"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _BYTES, bytes(value)
    if isinstance(value, str):
        return _TEXT, value.encode("utf-8", "surrogatepass")
    if isinstance(value, int):
        return _INTEGER, str(value).encode()
    if isinstance(value, float):
        return _FLOATING, _FLOAT.pack(value)
    raise TypeError(f"header {name!r} is bytes, str, int, float or bool, not {type(value).__name__}")


def encode_headers(headers):
    """Headers (str -> bytes | str | int | float | bool) as bytes."""
    parts = []
    for name, value in headers.items():
        if not isinstance(name, str):
            raise TypeError(f"names of headers are str, not {type(name).__name__}")
        kind, data = encode_value(name, value)
        label = name.encode("utf-8", "surrogatepass")
        parts.append(_HEADER.pack(kind, 0, len(label), len(data)) + label + data)
    return b"".join(parts)


def decode_headers(bytes data):
    """What encode_headers made; raises ValueError when the bytes are malformed."""
    headers = {}
    cdef Py_ssize_t at = 0
    try:
        while at < len(data):
            kind, _, name_length, length = _HEADER.unpack_from(data, at)
            at += _HEADER.size
            name = data[at:at + name_length].decode("utf-8", "surrogatepass")
            value = data[at + name_length:at + name_length + length]
            at += name_length + length
            if kind == _TEXT:
                headers[name] = value.decode("utf-8", "surrogatepass")
            elif kind == _INTEGER:
                headers[name] = int(value)
            elif kind == _FLOATING:
                headers[name] = _FLOAT.unpack(value)[0]
            elif kind == _BOOLEAN:
                headers[name] = value != b"\0"
            else:
                headers[name] = value
    except (struct.error, UnicodeDecodeError) as error:
        raise ValueError("malformed headers") from error
    return headers


def encode_attributes(key=None, headers=None, uint64_t due_ns=0, uint64_t expiry_ns=0, extra=()):
    """Attributes as bytes; `extra` is an iterable of (kind, bytes).  Raises TypeError and ValueError."""
    parts = []
    if key is not None:
        if isinstance(key, str):
            parts.append(_attribute(ROTA_ATTRIBUTE_KEY_TEXT, key.encode("utf-8", "surrogatepass")))
        elif isinstance(key, (bytes, bytearray, memoryview)):
            parts.append(_attribute(ROTA_ATTRIBUTE_KEY_BYTES, bytes(key)))
        else:
            raise TypeError(f"key is bytes or str, not {type(key).__name__}")
    if headers:
        parts.append(_attribute(ROTA_ATTRIBUTE_HEADERS, encode_headers(headers)))
    if due_ns:
        parts.append(_attribute(ROTA_ATTRIBUTE_DUE, _U64.pack(due_ns)))
    if expiry_ns:
        parts.append(_attribute(ROTA_ATTRIBUTE_EXPIRY, _U64.pack(expiry_ns)))
    for kind, value in extra:
        parts.append(_attribute(kind, value))
    data = b"".join(parts)
    if len(data) > _LIMIT:
        raise ValueError(f"key and headers together may have {_LIMIT} bytes, not {len(data)}")
    return data


def decode_attributes(bytes data):
    """Attributes as a dict of kind -> bytes."""
    found = {}
    cdef Py_ssize_t at = 0
    while at + 4 <= len(data):
        kind, _, length = _HEAD.unpack_from(data, at)
        found.setdefault(kind, data[at + 4:at + 4 + length])
        at += 4 + length
    return found


def moments(uint64_t now_ns, double delay, ttl):
    """(due, expiry) in wall ns of a delay and a time to live in seconds; 0 where there is none.  Raises ValueError."""
    if not 0 <= delay < _FAR:
        raise ValueError(f"delay is 0 to {_FAR:.0e} seconds, not {delay!r}")
    if ttl is not None and not 0 < ttl < _FAR:
        raise ValueError(f"ttl is above 0 and below {_FAR:.0e} seconds, not {ttl!r}")
    return now_ns + <uint64_t>(delay * 1e9) if delay > 0 else 0, \
        now_ns + <uint64_t>(<double>ttl * 1e9) if ttl is not None else 0


def encode_indexes(indexes, by=None, double age_rate=0.0, dedup_window=None, dedup_count=None):
    """What a queue indexes, by which header it is ordered, and how long it remembers keys of puts (seconds) and how many,
    as bytes.  Raises TypeError and ValueError."""
    if isinstance(indexes, str):
        raise TypeError("indexes is a sequence of names, not one name")
    names = list(indexes)
    if len(set(names)) != len(names):
        raise ValueError(f"a field is indexed once: {names!r}")
    if len([name for name in names if name != "key"]) > ROTA_INDEX_HEADERS_MAX:
        raise ValueError(f"a queue indexes at most {ROTA_INDEX_HEADERS_MAX} headers, not {len(names)}")
    parts = []
    for name in names + ([by] if by is not None else []):
        label = name.encode("utf-8", "surrogatepass")
        if not 0 < len(label) <= 200:
            raise ValueError(f"the name of an indexed header has 1 to 200 bytes, not {len(label)}")
        if len(parts) == len(names):
            parts.append(bytes((ROTA_INDEX_SCORE, 8 + len(label))) + _FLOAT.pack(age_rate) + label)
        elif name == "key":
            parts.append(bytes((ROTA_INDEX_KEY, 0)))
        else:
            parts.append(bytes((ROTA_INDEX_HEADER, len(label))) + label)
    if dedup_window is not None or dedup_count is not None:
        parts.append(bytes((ROTA_INDEX_WINDOW, _WINDOW.size)) + _WINDOW.pack(round((dedup_window or 0) * 1e9), dedup_count or 0))
    data = b"".join(parts)
    if len(data) > ROTA_INDEX_BYTES_MAX:
        raise ValueError(f"the names of indexed headers may have {ROTA_INDEX_BYTES_MAX} bytes together, not {len(data)}")
    return data


def _label(bytes data):
    """The name of a header; bytes that are none, from a damaged file, are shown as such."""
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8", "backslashreplace")


def decode_indexes(bytes data):
    """What encode_indexes made: a dict of indexes, by, age_rate, dedup_window, dedup_count."""
    cdef Py_ssize_t at = 0
    cdef uint64_t window_ns = 0, count = 0
    names, by, age_rate = [], None, 0.0
    while at + 2 <= len(data):
        kind, label = data[at], data[at + 2:at + 2 + data[at + 1]]
        at += 2 + data[at + 1]
        if kind == ROTA_INDEX_WINDOW:
            window_ns, count = _WINDOW.unpack(label)
        elif kind == ROTA_INDEX_SCORE:
            by, age_rate = _label(label[8:]), _FLOAT.unpack(label[:8])[0]
        else:
            names.append("key" if kind == ROTA_INDEX_KEY else _label(label))
    return {"indexes": tuple(names), "by": by, "age_rate": age_rate,
            "dedup_window": window_ns / 1e9 if window_ns else None, "dedup_count": count or None}


def key_of(bytes data):
    """The key in the attributes: bytes, str or None."""
    found = decode_attributes(data)
    if ROTA_ATTRIBUTE_KEY_TEXT in found:
        return found[ROTA_ATTRIBUTE_KEY_TEXT].decode("utf-8", "surrogatepass")
    return found.get(ROTA_ATTRIBUTE_KEY_BYTES)


def error_of(bytes data):
    """Why the message failed, as the attributes say, or None."""
    found = decode_attributes(data).get(ROTA_ATTRIBUTE_ERROR)
    return None if found is None else found.decode("utf-8", "replace")


def headers_of(bytes data):
    """The headers in the attributes, a new dict."""
    return decode_headers(decode_attributes(data).get(ROTA_ATTRIBUTE_HEADERS, b""))


def put_at(bytes data):
    """When a copied message was first put, in wall ns; 0 when the attributes do not say."""
    found = decode_attributes(data).get(ROTA_ATTRIBUTE_PUT_AT, b"")
    return _U64.unpack(found)[0] if len(found) == _U64.size else 0
