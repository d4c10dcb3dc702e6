# Why a message came back, kept with the message.
from libc.stdint cimport uint64_t

from rota._core.draft cimport Settle
from rota._core.store cimport Store

cdef bytes keep_reason(Store store, const Settle *settle, bytes body, bytes attributes, uint64_t put_ns, str reason)
