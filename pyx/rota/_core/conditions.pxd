# Conditions, and what an index knows of them.
from libc.stdint cimport uint64_t

from rota._core.message cimport Message
from rota._core.queue cimport Queue

cdef uint64_t term_of(Queue queue, name, value) except? 0
cdef list terms_of(Queue queue, where)
cdef tuple joined(key, header, where)
cdef bint is_meant(where, Message message) except -1
cdef bint are_meant(condition, function, Message message) except -1
cdef bint is_equal(has, value) except -1
