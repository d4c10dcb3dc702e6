"""The name under which a coordinator keeps a key: 128 bits of a keyed hash.

What holds: str is the same key as its UTF-8; a number is no string; what is no bytes, str or integer is refused, so no
two objects that compare as equal have different names by accident of their type.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.long cimport PyLong_CheckExact
from cpython.unicode cimport PyUnicode_CheckExact
from libc.stdint cimport uint8_t, uint64_t

from engine.automaton cimport *

import operator

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1
    unsigned long long PyLong_AsUnsignedLongLong(object number) except? 0xffffffffffffffff
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef rota_key_name name_of(const uint64_t *secret, object key) except *:
    cdef Py_ssize_t size
    cdef const char *text
    cdef long long number
    cdef int overflow = 0
    if PyBytes_CheckExact(key):
        return rota_name_bytes(secret, <const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
    if PyLong_CheckExact(key):
        number = PyLong_AsLongLongAndOverflow(key, &overflow)
        if overflow:
            return rota_name_number(secret, PyLong_AsUnsignedLongLong(key), ROTA_KEY_UNSIGNED)
        return rota_name_number(secret, <uint64_t>number, ROTA_KEY_SIGNED)
    if PyUnicode_CheckExact(key):
        text = PyUnicode_AsUTF8AndSize(key, &size)
        return rota_name_bytes(secret, <const uint8_t *>text, size)
    return name_of(secret, plain(key))


cdef object plain(object key):
    """The key as an exact bytes, int or str."""
    if isinstance(key, str):
        return str.__str__(key)
    if hasattr(key, "__index__"):
        return int(operator.index(key))
    try:
        return bytes(memoryview(key))
    except TypeError:
        raise TypeError(f"a key is bytes, str or int, not {type(key).__name__}") from None
