"""Putting messages: one, a list, the rows of an array; what the caller gets is a receipt.

What holds:

1. `bytes` cannot change, so they are summed where they are; anything else is copied first and the copy is summed.
2. A commit is encoded outside the lock, in one pass over the bytes, at its final places.
3. Nothing is written when a message or a batch is too large for a commit (a quarter of a segment).
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_FULL_RO, PyBuffer_IsContiguous, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from engine.atomics cimport *
from engine.control cimport *
from engine.crc32c cimport rota_crc32c, rota_crc32c_copy, rota_crc32c_three
from engine.encode cimport rota_encode_op, rota_encode_plain_frame, rota_plain_frame_sum
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.status cimport *

from rota._core.append cimport SPACE_PUT, Placed
from rota._core.draft cimport *
from rota._core.lane cimport queue_at
from rota._core.reap cimport wake_queue
from rota._core.store cimport Store, deadline_of

from rota import errors

cdef extern from *:
    """
    /* Items of a list of bytes, borrowed: the list stays as it is while the GIL is held. */
    #define rota_list_item(list, i) PyList_GET_ITEM(list, i)
    #define rota_item_size(list, i) ((uint64_t)PyBytes_GET_SIZE(PyList_GET_ITEM(list, i)))
    #define rota_item_bytes(list, i) ((const uint8_t *)PyBytes_AS_STRING(PyList_GET_ITEM(list, i)))
    """
    PyObject *rota_list_item(list items, Py_ssize_t i) noexcept
    uint64_t rota_item_size(list items, Py_ssize_t i) noexcept
    const uint8_t *rota_item_bytes(list items, Py_ssize_t i) noexcept

cdef enum:
    STACK_BYTES = 4096
    SCRATCH_BYTES = 1 << 20


cdef uint64_t commit_limit(Store store) noexcept:
    return store.h.segment_size // 4


cdef int too_large(Store store, uint64_t size, bint single) except -1:
    if single:
        raise errors.MessageTooLarge(f"a message of {size} bytes does not fit into a commit of this repository, which "
                                     f"takes {commit_limit(store)} bytes: split it, or make a repository of more "
                                     "capacity, whose segments are larger", path=store.path)
    raise errors.TransactionTooLarge(f"a batch of {size} bytes does not fit into one commit of this repository, which "
                                     f"takes {commit_limit(store)} bytes: put it in parts", path=store.path)


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Receipt:
    """What a put returned: the ids, and how safe they are by now.

    `id` is the first one, `count` how many there are, `lsn` the position in the log behind the commit.  `duplicate`: a
    message with the same dedup key was there, so nothing was added and `id` is its.
    """

    def __init__(self):
        raise TypeError("a receipt comes from a put")

    @property
    def ids(self):
        """The ids of the messages, a range in the order of the bodies."""
        return range(self.id, self.id + self.count)

    @property
    def visible(self):
        """Whether other processes see it: always, once there is a receipt."""
        return True

    @property
    def durable(self):
        """Whether it survives power loss by now."""
        self.store.check()
        return rota_load_acquire_u64(&self.store.h.control.durable_lsn) >= self.lsn

    def wait(self, timeout=None):
        """Wait until it is durable: True, or False when the timeout came first.  Raises OutcomeUnknown."""
        self.store.check()
        return bool(self.store.wait_durable(self.lsn, deadline_of(timeout)))

    def __len__(self):
        return self.count

    def __int__(self):
        return self.id

    def __repr__(self):
        ids = f"{self.id} to {self.id + self.count - 1}" if self.count > 1 else f"{self.id}" if self.count else "of none"
        state = "closed" if self.store.closed else "forked" if self.store.forked else \
            "durable" if self.durable else "visible"
        return f"<rota.Receipt {ids} {state}>"


cdef Receipt new_receipt(Store store, uint64_t base_id, uint64_t count, uint64_t lsn):
    cdef Receipt receipt = Receipt.__new__(Receipt)
    receipt.store = store
    receipt.id = base_id
    receipt.count = count
    receipt.lsn = lsn
    return receipt


cdef Receipt empty_receipt(Store store, object durability):
    """For a put of nothing, which depends on what it saw."""
    cdef uint64_t tail = rota_load_acquire_u64(&store.h.control.tail_lsn)
    cdef Receipt receipt = new_receipt(store, store.h.control.log.next_id, 0, tail)
    store.settle_durability(receipt.lsn, durability)
    return receipt


cdef inline void seal_meta(rota_handle *h, uint8_t *bytes, uint64_t meta) noexcept nogil:
    (<rota_commit_header *>bytes).meta_crc = rota_crc32c(h.salt_crc, bytes + 96, meta)


cdef inline void encode_frame(rota_handle *h, uint8_t *bytes, uint64_t place, uint64_t offset, uint64_t length,
                              uint32_t queue, uint32_t priority, const void *body) noexcept nogil:
    """A plain frame: its header, its body at the final place, its sum (body may not change meanwhile)."""
    cdef uint32_t sum = rota_plain_frame_sum(h.salt_crc, <uint32_t>length, <uint32_t>offset, <uint32_t>place,
                                             <uint16_t>queue, <uint8_t>priority)
    memcpy(bytes + offset, body, length)
    rota_encode_plain_frame(bytes + place, rota_crc32c(sum, body, length), <uint32_t>length, <uint32_t>offset,
                            <uint32_t>place, <uint16_t>queue, <uint8_t>priority)


cdef inline void encode_three(rota_handle *h, uint8_t *bytes, uint64_t place, uint64_t offset, uint64_t length,
                              uint32_t queue, uint32_t priority, const uint8_t **bodies) noexcept nogil:
    """Three plain frames of one length, summed side by side: of the copies, so bodies may change meanwhile."""
    cdef uint64_t step = (length + 7) & ~<uint64_t>7
    cdef uint32_t sums[3]
    cdef uint32_t k
    for k in range(3):
        sums[k] = rota_plain_frame_sum(h.salt_crc, <uint32_t>length, <uint32_t>(offset + k * step),
                                       <uint32_t>(place + k * 32), <uint16_t>queue, <uint8_t>priority)
        pad(bytes + offset + k * step, length)
        memcpy(bytes + offset + k * step, bodies[k], length)
    rota_compiler_barrier()
    rota_crc32c_three(sums, bytes + offset, bytes + offset + step, bytes + offset + 2 * step, length)
    for k in range(3):
        rota_encode_plain_frame(bytes + place + k * 32, sums[k], <uint32_t>length, <uint32_t>(offset + k * step),
                                <uint32_t>(place + k * 32), <uint16_t>queue, <uint8_t>priority)


cdef inline void pad(uint8_t *to, uint64_t length) noexcept nogil:
    """Zeros up to the next multiple of eight; the body is copied over them."""
    if length & 7:
        (<uint64_t *>(to + (length & ~<uint64_t>7)))[0] = 0


cdef Receipt finish(Store store, Draft *draft, uint32_t queue_number, uint64_t created, double deadline, object durability):
    cdef Placed placed
    cdef rota_queue *queue
    draft.queue_created = created
    store.submit(draft, SPACE_PUT, &placed, deadline)
    queue = queue_at(store.h, queue_number)
    if queue != NULL:
        wake_queue(store.h, queue)
    if store.h.durability or durability is not None:
        store.settle_durability(placed.end_lsn, durability)
    return new_receipt(store, placed.base_id, draft.message_count, placed.end_lsn)


cdef Receipt put_one(Store store, uint32_t queue, uint64_t created, bytes body, double deadline, object durability):
    """One plain message that fits on the stack, else the general way."""
    cdef uint8_t memory[4096]
    cdef Draft draft
    cdef uint64_t length = PyBytes_GET_SIZE(body)
    cdef uint64_t total = rota_pad(160 + length)
    if total > STACK_BYTES:
        return put_full(store, queue, created, body, b"", 0, 0, deadline, durability)
    memset(&draft, 0, sizeof(Draft))
    draft.bytes = memory
    draft.length = total
    draft.op_bytes = 32
    draft.op_count = 1
    draft.message_count = 1
    draft.put_bytes = length
    memset(memory + total - ROTA_CELL, 0, ROTA_CELL)
    rota_encode_op(memory + 96, ROTA_OP_PUT, 0, <uint16_t>queue, 0, 1, 0, 0)
    encode_frame(store.h, memory, 128, 160, length, queue, 0, PyBytes_AS_STRING(body))
    seal_meta(store.h, memory, 64)
    return finish(store, &draft, queue, created, deadline, durability)


cdef int add_message(Store store, Draft *draft, uint32_t queue, object body, bytes attributes, uint32_t priority,
                     uint8_t flags) except -1:
    """Copy one message of any bytes-like kind into a draft."""
    cdef Py_buffer view
    cdef Envelope envelope
    cdef int status
    PyObject_GetBuffer(body, &view, PyBUF_SIMPLE)
    try:
        if <uint64_t>view.len + len(attributes) + 160 > commit_limit(store):
            too_large(store, view.len, True)
        memset(&envelope, 0, sizeof(envelope))
        envelope.attributes = <const uint8_t *>PyBytes_AS_STRING(attributes)
        envelope.attribute_bytes = <uint32_t>len(attributes)
        envelope.queue = <uint16_t>queue
        envelope.priority = <uint8_t>priority
        envelope.flags = flags
        status = draft_message(draft, &envelope, view.buf, view.len, 0)
    finally:
        PyBuffer_Release(&view)
    if status != ROTA_OK:
        raise MemoryError
    return 0


cdef Receipt put_full(Store store, uint32_t queue, uint64_t created, object body, bytes attributes, uint32_t priority,
                      uint8_t flags, double deadline, object durability):
    """One message with attributes, or one that is large, or not bytes."""
    cdef Draft draft
    draft_begin(&draft, store.h)
    try:
        add_message(store, &draft, queue, body, attributes, priority, flags)
        draft_op(&draft, ROTA_OP_PUT, <uint8_t>priority, <uint16_t>queue, 0, 1, ROTA_PUT_DATED if flags else 0,
                 NULL, 0)
        if draft_seal(&draft) != ROTA_OK:
            raise MemoryError
        return finish(store, &draft, queue, created, deadline, durability)
    finally:
        draft_end(&draft)


cdef uint8_t *take_scratch(Store store, uint64_t wanted) except NULL:
    """Memory of at least `wanted` bytes: the store's, when it is not in use."""
    cdef uint8_t *memory = store.scratch
    store.scratch = NULL
    if memory != NULL and store.scratch_size >= wanted:
        return memory
    free(memory)
    store.scratch_size = wanted if wanted > SCRATCH_BYTES else SCRATCH_BYTES
    memory = <uint8_t *>malloc(store.scratch_size)
    if memory == NULL:
        raise MemoryError
    return memory


cdef void give_scratch(Store store, uint8_t *memory, uint64_t size) noexcept:
    if store.scratch == NULL and size <= 16 << 20:
        store.scratch = memory
        store.scratch_size = size
    else:
        free(memory)


cdef uint64_t total_of(list bodies, bint *plain) noexcept:
    """Bytes of data that these bodies take; plain: all of them are bytes."""
    cdef uint64_t total = 0
    cdef Py_ssize_t i
    for i in range(len(bodies)):
        if not PyBytes_CheckExact(<object>rota_list_item(bodies, i)):
            plain[0] = False
            return 0
        total += (<uint64_t>PyBytes_GET_SIZE(<object>rota_list_item(bodies, i)) + 7) & ~<uint64_t>7
    plain[0] = True
    return total


cdef void encode_list(rota_handle *h, uint8_t *memory, list items, uint64_t count, uint64_t offset, uint32_t queue,
                      uint32_t priority) noexcept:
    """Frames and bodies of a list of bytes, which nobody changes while the GIL is held."""
    cdef const uint8_t *bodies[3]
    cdef uint64_t i = 0, k, length
    while i < count:
        length = rota_item_size(items, i)
        bodies[0] = rota_item_bytes(items, i)
        if i + 3 <= count and rota_item_size(items, i + 1) == length and rota_item_size(items, i + 2) == length:
            bodies[1] = rota_item_bytes(items, i + 1)
            bodies[2] = rota_item_bytes(items, i + 2)
            encode_three(h, memory, 128 + 32 * i, offset, length, queue, priority, bodies)
            offset += 3 * ((length + 7) & ~<uint64_t>7)
            i += 3
        else:
            pad(memory + offset, length)
            encode_frame(h, memory, 128 + 32 * i, offset, length, queue, priority, bodies[0])
            offset += (length + 7) & ~<uint64_t>7
            i += 1


cdef Receipt put_list(Store store, uint32_t queue, uint64_t created, object bodies, uint32_t priority, double deadline,
                      object durability, object compression):
    """Many plain messages of one priority in one commit."""
    cdef list items = bodies if type(bodies) is list else list(bodies)
    cdef uint64_t count = len(items), data, directory = 128, offset, total, length, i, size
    cdef bint plain = True
    cdef uint8_t *memory
    cdef Draft draft
    if count == 0:
        return empty_receipt(store, durability)
    data = total_of(items, &plain)
    if not plain:
        items = [body if type(body) is bytes else bytes(memoryview(body)) for body in items]
        data = total_of(items, &plain)
    if compression is not None:
        from rota._core.compress import put_compressed
        return put_compressed(store, queue, created, items, priority, deadline, durability)
    offset = directory + count * 32
    total = rota_pad(offset + data)
    if total > commit_limit(store):
        too_large(store, total, False)
    memory = take_scratch(store, total)
    size = store.scratch_size
    try:
        memset(&draft, 0, sizeof(Draft))
        draft.bytes = memory
        draft.length = total
        draft.op_bytes = 32
        draft.op_count = 1
        draft.message_count = <uint32_t>count
        draft.put_bytes = data
        rota_encode_op(memory + 96, ROTA_OP_PUT, <uint8_t>priority, <uint16_t>queue, 0, count, 0, 0)
        memset(memory + total - ROTA_CELL, 0, ROTA_CELL)
        encode_list(store.h, memory, items, count, offset, queue, priority)
        seal_meta(store.h, memory, 32 + 32 * count)
        return finish(store, &draft, queue, created, deadline, durability)
    finally:
        give_scratch(store, memory, size)


cdef void encode_row(rota_handle *h, uint8_t *memory, uint64_t place, uint64_t offset, uint64_t row_size, uint32_t queue,
                     const uint8_t *row) noexcept nogil:
    cdef uint32_t sum = rota_plain_frame_sum(h.salt_crc, <uint32_t>row_size, <uint32_t>offset, <uint32_t>place,
                                             <uint16_t>queue, 0)
    pad(memory + offset, row_size)
    rota_encode_plain_frame(memory + place, rota_crc32c_copy(sum, memory + offset, row, row_size), <uint32_t>row_size,
                            <uint32_t>offset, <uint32_t>place, <uint16_t>queue, 0)


cdef void encode_rows(rota_handle *h, uint8_t *memory, uint64_t offset, const uint8_t *rows, uint64_t row_size,
                      uint64_t step, uint64_t count, uint32_t queue) noexcept nogil:
    """Rows of one size.  The copy is summed, since somebody may write to the array meanwhile."""
    cdef const uint8_t *three[3]
    cdef uint64_t i = 0
    while i + 3 <= count:
        three[0] = rows + i * row_size
        three[1] = three[0] + row_size
        three[2] = three[1] + row_size
        encode_three(h, memory, 128 + 32 * i, offset + i * step, row_size, queue, 0, three)
        i += 3
    while i < count:
        encode_row(h, memory, 128 + 32 * i, offset + i * step, row_size, queue, rows + i * row_size)
        i += 1


cdef Receipt put_rows(Store store, uint32_t queue, uint64_t created, object array, double deadline, object durability):
    """Each row of a C-contiguous array is a message."""
    cdef Py_buffer view
    cdef uint64_t count, row_size, step, offset, total, size, length
    cdef uint8_t *memory = NULL
    cdef Draft draft
    PyObject_GetBuffer(array, &view, PyBUF_FULL_RO)
    try:
        if view.ndim < 1:
            raise ValueError("put_array takes an array of at least one dimension")
        count = view.shape[0]
        if count == 0:
            return empty_receipt(store, durability)
        length = view.len
        row_size = length // count
        if not PyBuffer_IsContiguous(&view, 67):  # 'C'
            raise ValueError("put_array takes a C-contiguous array: use numpy.ascontiguousarray")
        step = (row_size + 7) & ~<uint64_t>7
        offset = 128 + 32 * count
        total = rota_pad(offset + step * count)
        if total > commit_limit(store):
            too_large(store, total, count == 1)
        memory = take_scratch(store, total)
        size = store.scratch_size
        memset(&draft, 0, sizeof(Draft))
        draft.bytes = memory
        draft.length = total
        draft.op_bytes = 32
        draft.op_count = 1
        draft.message_count = <uint32_t>count
        draft.put_bytes = length
        rota_encode_op(memory + 96, ROTA_OP_PUT, 0, <uint16_t>queue, 0, count, 0, 0)
        memset(memory + total - ROTA_CELL, 0, ROTA_CELL)
        encode_rows(store.h, memory, offset, <const uint8_t *>view.buf, row_size, step, count, queue)
        seal_meta(store.h, memory, 32 + 32 * count)
        return finish(store, &draft, queue, created, deadline, durability)
    finally:
        PyBuffer_Release(&view)
        if memory != NULL:
            give_scratch(store, memory, size)
