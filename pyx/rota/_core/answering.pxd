# Replies that the engine itself gives, in the commit that sets a request aside.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.handle cimport rota_handle

from rota._core.draft cimport Draft

cdef int draft_answer(rota_handle *h, Draft *draft, uint32_t source, uint64_t id, uint8_t status) noexcept nogil

cdef inline bint is_long(const rota_handle *h, const Draft *draft) noexcept nogil:
    """Whether a commit that sets messages aside has enough of their replies, and another one takes the rest."""
    return draft.data_bytes > h.segment_size // 16
