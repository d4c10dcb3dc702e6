"""Puts with a key that suppresses duplicates, alone and in a transaction.

What holds:

1. Whether a key is known is asked before anything is built, so that a duplicate neither waits for room nor is refused
   for want of it; and again under the lock of the append, where it counts.
2. A duplicate adds nothing and its answer depends on what it saw: at level sync it returns when that is durable.
"""

from hashlib import blake2b

from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from engine.atomics cimport *
from engine.control cimport *
from engine.format cimport *
from engine.status cimport *
from engine.term cimport rota_index_window

from rota._core.dedup cimport key_find, key_fresh
from rota._core.draft cimport *
from rota._core.lane cimport queue_at
from rota._core.lock cimport lock_leave, lock_slice
from rota._core.pending cimport COMMITTED, PendingReceipt, new_pending
from rota._core.put cimport Receipt, add_message, finish, new_receipt
from rota._core.queue cimport Queue
from rota._core.store cimport Store, deadline_of

from rota import errors
from rota._core.codec import encode_attributes, moments
from rota._core.message import submit_ops


cdef int digest_of(object dedup, uint64_t *digest) except -1:
    """128 bits of a key; text and bytes are never the same key."""
    cdef bytes data
    if isinstance(dedup, str):
        data = b"t" + dedup.encode("utf-8", "surrogatepass")
    elif isinstance(dedup, (bytes, bytearray, memoryview)):
        data = b"b" + bytes(dedup)
    else:
        raise TypeError(f"dedup is bytes or str, not {type(dedup).__name__}")
    data = blake2b(data, digest_size=16).digest()
    memcpy(digest, <const char *>data, 16)
    return 0


cdef int check_window(Queue queue) except -1:
    cdef rota_queue *native = queue.native()
    cdef uint64_t window_ns = 0
    cdef uint32_t count = 0
    if not rota_index_window(native.index_text, native.index_bytes, &window_ns, &count):
        raise errors.StateError(f"the queue {queue.name!r} remembers no keys of puts: make it with dedup_window= or "
                                "dedup_count=", path=queue.store.path)
    return 0


cdef uint64_t known_id(Queue queue, const uint64_t *digest, uint64_t *lsn, uint64_t *any_id) except? 0:
    """The id of the message that a key came with, within the window; 0: none.  lsn: what that answer depends on.
    any_id: the same, also of one whose window is over."""
    cdef Store store = queue.store
    cdef rota_queue *native = queue.native()
    cdef rota_record *record
    cdef rota_error error
    cdef uint64_t id = 0
    cdef int status = ROTA_RETRY, slices = 0
    any_id[0] = 0
    while store.again(&status, &slices, &error):
        with nogil:
            rota_fetch_add_u32(&store.h.calls, 1)
            status = lock_slice(store.h, &error)
            if status == ROTA_OK:
                native = queue_at(store.h, queue.number)
                if native != NULL and native.created_lsn == queue.created_lsn:
                    record = key_fresh(store.h, native, digest[0], digest[1])
                    id = record.a if record != NULL else 0
                    record = key_find(store.h, queue.number, digest[0], digest[1])
                    any_id[0] = record.a if record != NULL else 0
                lsn[0] = rota_load_acquire_u64(&store.h.control.tail_lsn)
                lock_leave(store.h)
        rota_fetch_sub_u32(&store.h.calls, 1)
    if status != ROTA_OK:
        store.fail(&error)
    return id


cdef Receipt duplicate_of(Store store, uint64_t id, uint64_t lsn, object durability):
    cdef Receipt receipt = new_receipt(store, id, 1, lsn)
    receipt.duplicate = True
    store.settle_durability(lsn, durability)
    return receipt


cdef Receipt put_with_key(Queue queue, object body, bytes attributes, int priority, uint8_t flags,
                          const uint64_t *digest, double deadline, object durability):
    cdef Draft draft
    draft_begin(&draft, queue.store.h)
    try:
        add_message(queue.store, &draft, queue.number, body, attributes, priority, flags)
        draft_op(&draft, ROTA_OP_PUT, <uint8_t>priority, <uint16_t>queue.number, 0, 1, ROTA_PUT_DATED if flags else 0,
                 NULL, 0)
        draft_op(&draft, ROTA_OP_DEDUP, ROTA_DEDUP_OWN_PUT, <uint16_t>queue.number, 0, digest[0], digest[1], NULL, 0)
        if draft_seal(&draft) != ROTA_OK:
            raise MemoryError
        return finish(queue.store, &draft, queue.number, queue.created_lsn, deadline, durability)
    finally:
        draft_end(&draft)


cdef object put_under(Queue queue, object body, tuple given, object timeout, object durability, object dedup):
    """One commit that carries the token of this handle."""
    with queue.repository.transaction(None, durability, timeout) as transaction:
        pending = transaction.put(queue, body, *given, dedup=dedup)
    return duplicate_of(queue.store, pending.id, transaction.receipt.lsn, durability) if pending.duplicate \
        else transaction.receipt


def put_once(Queue queue, body, tuple given, timeout, durability, dedup):
    """Queue.put() with a dedup key; `given` is key, headers, priority, delay and ttl.  Raises as that does."""
    cdef uint64_t digest[2]
    cdef uint64_t due = 0, expiry = 0, id, lsn = 0, ignored = 0
    cdef double deadline = -1.0 if timeout is None else deadline_of(timeout)
    cdef uint8_t flags
    key, headers, priority, delay, ttl = given
    if not 0 <= priority <= 9:
        raise ValueError(f"priority is 0 to 9, not {priority}")
    if isinstance(body, str):
        raise TypeError("a body is bytes-like: encode text first")
    digest_of(dedup, digest)
    check_window(queue)
    due, expiry = moments(queue.store.h.os.clock_wall_ns(queue.store.h.os), delay, ttl)
    flags = (ROTA_FRAME_DUE if due else 0) | (ROTA_FRAME_EXPIRES if expiry else 0)
    attributes = encode_attributes(key, headers, due, expiry)
    while True:
        id = known_id(queue, digest, &lsn, &ignored)
        if id:
            return duplicate_of(queue.store, id, lsn, durability)
        try:
            if queue.token_id is not None:
                return put_under(queue, body, given, timeout, durability, dedup)
            return put_with_key(queue, body, attributes, priority, flags, digest, deadline, durability)
        except errors.Conflict:  # another one was faster
            continue


def forget_key(Queue queue, dedup, durability=None):
    """Queue.forget()."""
    cdef uint64_t digest[2]
    cdef uint64_t id, lsn = 0, known = 0
    queue.store.check_writable()
    queue.store.level_of(durability)
    digest_of(dedup, digest)
    check_window(queue)
    id = known_id(queue, digest, &lsn, &known)
    if known:
        submit_ops(queue.store, [(ROTA_OP_DEDUP, ROTA_DEDUP_FORGET, queue.number, known, digest[0], digest[1], b"")],
                   durability)
    else:
        queue.store.settle_durability(lsn, durability)
    return id != 0


cdef PendingReceipt known_receipt(Queue queue, list journal, object dedup, uint64_t *digest):
    """What a put in a transaction returns when its key is known, in the queue or in its own journal; or None."""
    cdef PendingReceipt receipt, own
    cdef uint64_t id, lsn = 0, ignored = 0
    digest_of(dedup, digest)
    check_window(queue)
    receipt = new_pending(queue.store, 0, queue.number, queue.created_lsn)
    receipt.duplicate = True
    for entry in journal:
        if type(entry) is PendingReceipt:
            own = entry
            if own.has_key and own.queue == queue.number and own.made > own.taken \
                    and own.key[0] == digest[0] and own.key[1] == digest[1]:
                receipt.twin = own
                return receipt
    id = known_id(queue, digest, &lsn, &ignored)
    if id == 0:
        return None
    receipt.base_id = id
    receipt.lsn = lsn
    receipt.made = 1
    receipt.state = COMMITTED
    return receipt


cdef PendingReceipt with_key(PendingReceipt receipt, object dedup, const uint64_t *digest):
    """The receipt of a put of the transaction, which the commit enters with this key; None: without."""
    if dedup is not None:
        receipt.has_key = 1
        receipt.key[0] = digest[0]
        receipt.key[1] = digest[1]
    return receipt
