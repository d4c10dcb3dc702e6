"""Why a message came back: kept with the message, as one of its attributes.

What holds:

1. The message is copied with the reason, as cleaning copies it: it lives on wherever it goes, survives checkpoints and
   the reuse of segments, and a move or a reply of the engine finds the reason with it.
2. The copy is a commit of its own, before that of the return, admitted only while the claim holds.  A death between the
   two leaves a message with a reason that comes back by the death of its holder.
3. Copies are made under the job lock, since a checkpoint that is being walked takes places as they were at its begin.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint64_t
from libc.string cimport memset

from engine.atomics cimport *
from engine.control cimport *
from engine.failpoint cimport *
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.status cimport *

from rota._core.append cimport NEED_SPACE, SPACE_SETTLE, Placed, append_locked
from rota._core.checkpoint cimport job_leave, job_slice
from rota._core.draft cimport *
from rota._core.lock cimport lock_leave, lock_slice
from rota._core.provide cimport append_provide
from rota._core.store cimport Store

import logging
import struct

from rota._core.codec import decode_attributes

_log = logging.getLogger("rota")
_HEAD = struct.Struct("<BBH")
_U64 = struct.Struct("<Q")
_REASON_BYTES = 4096
_ALL_BYTES = 65535


cdef bytes with_reason(bytes attributes, uint64_t put_ns, str reason):
    """The attributes of the copy; a reason for which there is no room is shortened."""
    found = decode_attributes(attributes)
    found.pop(ROTA_ATTRIBUTE_ERROR, None)
    found.pop(ROTA_ATTRIBUTE_BLOCK, None)  # the body of the copy is plain
    found.setdefault(ROTA_ATTRIBUTE_PUT_AT, _U64.pack(put_ns))
    parts = [_HEAD.pack(kind, 0, len(value)) + value for kind, value in found.items()]
    room = min(_REASON_BYTES, _ALL_BYTES - sum(map(len, parts)) - _HEAD.size)
    text = reason.encode("utf-8", "replace")[:room] if room > 0 else b""
    if text:
        parts.append(_HEAD.pack(ROTA_ATTRIBUTE_ERROR, 0, len(text)) + text)
    return b"".join(parts)


cdef int append_copy(rota_handle *h, Draft *draft, Placed *placed, rota_error *error) noexcept nogil:
    """One try.  ROTA_RETRY: somebody else holds a lock, or what was missing is there now."""
    cdef int status = job_slice(h, error)
    if status != ROTA_OK:
        return status
    status = lock_slice(h, error)
    if status == ROTA_OK:
        placed.need = 0
        status = append_locked(h, draft, SPACE_SETTLE, placed, error)
        lock_leave(h)
        if status == ROTA_RETRY:
            status = append_provide(h, draft, SPACE_SETTLE, placed, False, error)
            if status == ROTA_OK or status == ROTA_TIMEOUT:
                status = ROTA_RETRY
    job_leave(h)
    return status


cdef bytes keep_reason(Store store, const Settle *settle, bytes body, bytes attributes, uint64_t put_ns, str reason):
    """Copy a claimed message with the reason: its new attributes.  Where there is no room the message stays as it is, and
    the log of the process says so.  Raises LeaseLost, Killed."""
    cdef rota_handle *h = store.h
    cdef bytes noted = with_reason(attributes, put_ns, reason)
    cdef Envelope envelope
    cdef Draft draft
    cdef Placed placed
    cdef rota_error error
    cdef int status = ROTA_RETRY, slices = 0
    found = decode_attributes(noted)
    memset(&envelope, 0, sizeof(envelope))
    envelope.attributes = <const uint8_t *>PyBytes_AS_STRING(noted)
    envelope.attribute_bytes = <uint32_t>len(noted)
    envelope.queue = settle.queue
    envelope.priority = settle.level
    envelope.flags = ROTA_FRAME_COPIED | (ROTA_FRAME_DUE if ROTA_ATTRIBUTE_DUE in found else 0) \
        | (ROTA_FRAME_EXPIRES if ROTA_ATTRIBUTE_EXPIRY in found else 0)
    draft_begin(&draft, h)
    try:
        draft.flags = ROTA_COMMIT_COPIES
        draft_message(&draft, &envelope, PyBytes_AS_STRING(body), len(body), settle.first_id)
        draft_op(&draft, ROTA_OP_COPY, 0, settle.queue, 0, 1, 0, NULL, 0)
        draft_settle(&draft, settle)
        if draft_seal(&draft) != ROTA_OK:
            raise MemoryError
        if draft.length <= h.segment_size // 2:
            while store.again(&status, &slices, &error):
                with nogil:
                    rota_fetch_add_u32(&h.calls, 1)
                    status = append_copy(h, &draft, &placed, &error)
                rota_fetch_sub_u32(&h.calls, 1)
        if status == ROTA_OK:
            rota_failpoint(h.failpoints, ROTA_AT_REASON_KEPT)
            return noted
        if status != ROTA_RETRY and status != ROTA_FULL and status != ROTA_DISK_FULL:
            store.fail(&error)
    finally:
        draft_end(&draft)
    _log.warning("no room to keep why message %d returned: %s", settle.first_id, reason)
    return attributes
