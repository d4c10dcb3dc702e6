# The name under which a coordinator keeps a key.
from libc.stdint cimport uint64_t

from engine.automaton cimport rota_key_name

cdef rota_key_name name_of(const uint64_t *secret, object key) except *
