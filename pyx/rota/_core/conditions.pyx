"""Conditions on messages: whether one is meant, and what an index knows of a condition.

What holds: an index is asked for values that every match has; what it names is compared with the message itself.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

from engine.control cimport rota_queue
from engine.format cimport ROTA_INDEX_HEADER
from engine.term cimport *

from rota._core.codec import encode_value
from rota.expressions import Comparison, Expression
from rota.expressions import header as header_field
from rota.expressions import key as key_field


cdef int kind_of(value) noexcept:
    return 1 if isinstance(value, str) else 2 if isinstance(value, bytes) else 3


cdef bint is_equal(has, value) except -1:
    """As a condition compares: numbers as in Python, text and bytes never with each other."""
    return has is not None and kind_of(has) == kind_of(value) and has == value


cdef uint64_t term_of(Queue queue, name, value) except? 0:
    """The term of a value of that header (None: the key) in the index of the queue; 0 when it is not indexed."""
    cdef rota_queue *native = queue.native()
    cdef rota_index_cursor cursor
    cdef rota_index_field field
    cdef bytes label, data
    cdef int kind
    if name is None:
        if not native.index_mask & 1:
            return 0
        kind, data = encode_value("key", value)
        return rota_term(queue.store.h.salt, 0, NULL, 0, kind, <const uint8_t *><const char *>data, <uint32_t>len(data))
    label = (<str?>name).encode("utf-8", "surrogatepass")
    rota_index_begin(&cursor, native.index_text, native.index_bytes)
    while rota_index_next(&cursor, &field):
        if field.kind == ROTA_INDEX_HEADER and field.name_length == <uint32_t>len(label) \
                and memcmp(field.name, <const char *>label, field.name_length) == 0:
            kind, data = encode_value(name, value)
            return rota_term(queue.store.h.salt, field.ordinal, field.name, field.name_length, kind,
                             <const uint8_t *><const char *>data, <uint32_t>len(data))
    return 0


cdef list terms_of(Queue queue, where):
    """The fewest terms of which every match of an expression has one, or None when no index can tell."""
    cdef list best = None, terms
    cdef uint64_t term
    if not isinstance(where, Expression):
        return None
    for alternative in where.lookups():
        terms = []
        for name, value in alternative:
            term = term_of(queue, name, value)
            if term == 0:
                break
            terms.append(term)
        else:
            if best is None or len(terms) < len(best):
                best = terms
    return best


cdef tuple joined(key, header, where):
    """The condition and the callable (None: there is none) that must hold."""
    if where is not None and not isinstance(where, Expression) and not callable(where):
        raise TypeError(f"where is a condition or a callable, not {type(where).__name__}")
    conditions = [] if key is None else [key_field == key]
    conditions += [header_field(name) == value for name, value in (header or {}).items()]
    if isinstance(where, Expression):
        conditions.append(where)
    condition = conditions[0] if conditions else None
    for other in conditions[1:]:
        condition = condition & other
    return condition, None if isinstance(where, Expression) else where


cdef bint is_meant(where, Message message) except -1:
    if type(where) is Comparison:
        name = where.field.name
        return where.holds(message.key if name is None else message.headers.get(name))
    if isinstance(where, Expression):
        return where.matches(message.key, message.headers)
    return bool(where(message))


cdef bint are_meant(condition, function, Message message) except -1:
    return (condition is None or is_meant(condition, message)) and (function is None or is_meant(function, message))
