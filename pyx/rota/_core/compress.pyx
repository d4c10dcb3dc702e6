"""Compressed batches: bodies packed into lz4 blocks of at most 64 KiB.

What holds: a block is the unit of loss; a block that lz4 does not make smaller is stored as plain frames; what was
saved is counted in the statistics.
"""

import struct

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from engine.crc32c cimport rota_crc32c
from engine.format cimport *
from engine.status cimport *

from rota._core.append cimport SPACE_PUT, Placed
from rota._core.draft cimport *
from rota._core.lane cimport queue_at
from rota._core.put cimport commit_limit, new_receipt
from rota._core.reap cimport wake_queue
from rota._core.store cimport Store

from rota import errors

_ATTRIBUTE = struct.Struct("<BBHI")


def _blocks(list bodies):
    """The bodies in runs of at most 64 KiB; a larger one stands alone."""
    run = []
    size = 0
    for body in bodies:
        if run and size + len(body) > ROTA_BLOCK_BYTES_MAX:
            yield run
            run, size = [], 0
        run.append(body)
        size += len(body)
    if run:
        yield run


def _pack(list run, uint32_t salt_crc):
    """A stored block, or None when it would not be smaller."""
    import lz4.block
    raw = b"".join(run)
    if not raw or len(raw) > ROTA_BLOCK_BYTES_MAX:
        return None
    packed = lz4.block.compress(raw, store_size=False)
    if len(packed) + 16 + 8 * len(run) >= len(raw):
        return None
    head = struct.pack("<III", len(raw), len(packed), 1)
    cdef bytes summed = head + packed
    cdef uint32_t crc = rota_crc32c(salt_crc, PyBytes_AS_STRING(summed), len(summed))
    return struct.pack("<I", crc) + summed


def put_compressed(Store store, uint32_t queue, uint64_t created, list bodies, uint32_t priority, double deadline, durability):
    """put_many with compression: one commit; frames of a block name its place by an attribute."""
    cdef Draft draft
    cdef Placed placed
    cdef Envelope envelope
    cdef bytes data, attribute
    cdef uint64_t count = len(bodies), raw = 0, at, base = 128 + 32 * count
    cdef rota_frame *frame
    draft_begin(&draft, store.h)
    try:
        memset(&envelope, 0, sizeof(envelope))
        envelope.queue = <uint16_t>queue
        envelope.priority = <uint8_t>priority
        for run in _blocks(bodies):
            block = _pack(run, store.h.salt_crc)
            raw += sum(map(len, run))
            # The attributes of the run come first (8 bytes each), then the block at a multiple of 8.
            at = base + draft.data_bytes + 8 * len(run)
            inside = 0
            for i, body in enumerate(run):
                if block is None:
                    envelope.flags = 0
                    envelope.attribute_bytes = 0
                    draft_message(&draft, &envelope, PyBytes_AS_STRING(<bytes>body), len(body), 0)
                    continue
                attribute = _ATTRIBUTE.pack(ROTA_ATTRIBUTE_BLOCK, 0, 4, at)
                envelope.flags = ROTA_FRAME_BLOCK
                envelope.attributes = <const uint8_t *>PyBytes_AS_STRING(attribute)
                envelope.attribute_bytes = 8
                draft_message(&draft, &envelope, NULL, 0, inside)
                if draft.failed:
                    raise MemoryError
                frame = <rota_frame *>draft.frames + draft.message_count - 1
                frame.body_length = <uint32_t>len(body)
                inside += len(body)
            if block is not None:
                data = block
                if draft_data(&draft, PyBytes_AS_STRING(data), len(data)) != ROTA_OK:
                    raise MemoryError
        draft_op(&draft, ROTA_OP_PUT, <uint8_t>priority, <uint16_t>queue, 0, count, 0, NULL, 0)
        if draft_seal(&draft) != ROTA_OK:
            raise MemoryError
        if draft.length > commit_limit(store):
            raise errors.TransactionTooLarge(f"a batch of {draft.length} bytes does not fit into one commit of this "
                                             f"repository, which takes {commit_limit(store)} bytes: put it in parts",
                                             path=store.path)
        draft.queue_created = created
        store.submit(&draft, SPACE_PUT, &placed, deadline)
        store.h.control.raw_bytes += raw
        store.h.control.compressed_bytes += draft.data_bytes
        if queue_at(store.h, queue) != NULL:
            wake_queue(store.h, queue_at(store.h, queue))
        store.settle_durability(placed.end_lsn, durability)
        return new_receipt(store, placed.base_id, count, placed.end_lsn)
    finally:
        draft_end(&draft)
