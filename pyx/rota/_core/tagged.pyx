"""Registrations in user hands: looked at, listed, written; a put or a get with a tag in one commit.

What holds:

1. What is read of a registration is of one moment: it is copied under the lock, and decoded outside of it.
2. A list is taken a bucket at a time; what is registered all the time is in it once.
3. A tagged put or get is one commit: the operation and what is remembered of it, or neither.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from engine.atomics cimport *
from engine.control cimport *
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.pool cimport *
from engine.status cimport *

from rota._core.append cimport SPACE_ANSWER, SPACE_PUT, SPACE_SETTLE, Placed
from rota._core.draft cimport *
from rota._core.image_tables cimport bucket_of
from rota._core.lock cimport lock_enter, lock_leave
from rota._core.message cimport Message, fill_settle
from rota._core.put cimport Receipt, add_message, new_receipt
from rota._core.queue cimport Queue
from rota._core.reap cimport wake_draft
from rota._core.registration cimport Registration, registration_find, registration_fits, registration_tag
from rota._core.store cimport Store, deadline_of

from rota import errors
from rota._core.codec import encode_attributes, moments

cdef enum:
    TEXT_BYTES = 4608 + 256    # of one registration: its tag
    CLAIMED = 1
    SETTLED = 2

# What a list tells of one registration; its name follows in a place of fixed size.
ctypedef struct Listed:
    uint64_t epoch
    uint64_t lsn
    uint16_t queue
    uint16_t name_length
    uint8_t stable
    uint8_t name[256]


# --- looking ---------------------------------------------------------------------------------------------------------


cdef int look(rota_handle *h, uint32_t queue, const uint8_t *name, uint32_t length, Registration *copied,
              uint8_t *tag, rota_error *error) noexcept nogil:
    """Copy a registration and its tag under the lock.  ROTA_EMPTY: there is none."""
    cdef Registration *found
    cdef int status = lock_enter(h, error)
    if status != ROTA_OK:
        return status
    found = registration_find(h, queue, name, length)
    if found == NULL:
        status = ROTA_EMPTY
    elif not registration_fits(found):
        status = rota_fail(error, ROTA_CORRUPT, "control", 0, "a registration is damaged")
    else:
        copied[0] = found[0]
        registration_tag(h, found, tag)
    lock_leave(h)
    return status


def registration_state(Queue queue not None, bytes name):
    """(kind, id, tag, epoch, stable, lsn) of a registration, or None.  Raises NotFound when the queue is gone."""
    cdef Store store = queue.store
    cdef rota_handle *h = store.h
    cdef Registration copied
    cdef uint8_t tag[TEXT_BYTES]
    cdef const uint8_t *text = <const uint8_t *><const char *>name
    cdef uint32_t length = <uint32_t>len(name)
    cdef rota_error error
    cdef int status
    memset(&copied, 0, sizeof(copied))
    queue.native()
    with nogil:
        rota_fetch_add_u32(&h.calls, 1)
        status = look(h, queue.number, text, length, &copied, tag, &error)
    rota_fetch_sub_u32(&h.calls, 1)
    if status == ROTA_EMPTY:
        return None
    if status != ROTA_OK:
        store.fail(&error)
    return copied.kind, copied.id, (<char *>tag)[:copied.tag_length], copied.epoch, bool(copied.stable), copied.lsn


cdef int64_t list_bucket(rota_handle *h, uint64_t *hash, int queue, Listed *to, int64_t room) noexcept nogil:
    """The registrations of one bucket (of one queue, or -1: of all); how many, -1: they need more room."""
    cdef uint64_t following = 0
    cdef rota_page *bucket = bucket_of(h, &h.control.tables[ROTA_TABLE_REGISTRATIONS], hash[0], &following)
    cdef rota_record *records = <rota_record *>(bucket + 1)
    cdef Registration *found
    cdef int64_t count = 0
    cdef uint32_t i, steps
    for i in range(ROTA_BUCKET_RECORDS if bucket != NULL else 0):
        found = <Registration *>rota_page_at(h, <uint32_t>records[i].a)
        steps = 0
        while records[i].key and found.page.kind == ROTA_PAGE_REGISTRATION and steps < 1 << 16:
            if (queue < 0 or found.queue == queue) and registration_fits(found):
                if count == room:
                    return -1
                to[count].epoch = found.epoch
                to[count].lsn = found.lsn
                to[count].queue = found.queue
                to[count].name_length = found.name_length
                to[count].stable = found.stable
                memcpy(to[count].name, found + 1, found.name_length)
                count += 1
            found = <Registration *>rota_page_at(h, found.next)
            steps += 1
    hash[0] = following
    return count


def list_registrations(Store store not None, int queue):
    """(queue number, name, epoch, stable, lsn) of the registrations of one queue, or (-1) of all, in no order."""
    cdef rota_handle *h = store.h
    cdef int64_t room = 4096, count = 0, i
    cdef Listed *found = <Listed *>malloc(room * sizeof(Listed))
    cdef uint64_t hash = 0
    cdef rota_error error
    cdef int status = ROTA_OK
    cdef list listed = []
    try:
        while True:
            if found == NULL:
                raise MemoryError
            store.check()
            with nogil:
                rota_fetch_add_u32(&h.calls, 1)
                status = lock_enter(h, &error)
                if status == ROTA_OK:
                    count = list_bucket(h, &hash, queue, found, room)
                    lock_leave(h)
            rota_fetch_sub_u32(&h.calls, 1)
            if status != ROTA_OK:
                store.fail(&error)
            if count < 0:
                room *= 2
                free(found)
                found = <Listed *>malloc(room * sizeof(Listed))
                continue
            for i in range(count):
                listed.append((found[i].queue, (<char *>found[i].name)[:found[i].name_length], found[i].epoch,
                               bool(found[i].stable), found[i].lsn))
            if hash == 0:
                return listed
    finally:
        free(found)


# --- writing ---------------------------------------------------------------------------------------------------------


cdef int submit(Store store, Draft *draft, int space, Placed *placed, double deadline) except -1:
    """Seal, append, wake."""
    cdef rota_error error
    cdef int status = draft_seal(draft)
    if status != ROTA_OK:
        rota_fail(&error, status, NULL, 0, "the operations do not fit into one commit")
        store.fail(&error)
    store.submit(draft, space, placed, deadline)
    wake_draft(store.h, draft)
    return 0


def write_registrations(Store store not None, list entries, durability=None):
    """One commit of (kind of operation, detail, queue number, epoch, expected lsn, extra); the position behind it.

    Raises StaleClerk, Conflict, NotFound: then none was written.
    """
    cdef Draft draft
    cdef Placed placed
    cdef bytes extra
    store.check_writable()
    store.level_of(durability)
    draft_begin(&draft, store.h)
    try:
        for kind, detail, queue, epoch, lsn, extra in entries:
            draft_op(&draft, kind, detail, queue, 0, epoch, lsn, <const char *>extra, len(extra))
        submit(store, &draft, SPACE_ANSWER, &placed, -1.0)
    finally:
        draft_end(&draft)
    store.settle_durability(placed.end_lsn, durability)
    return placed.end_lsn


def put_tagged(Queue queue not None, bytes extra, uint64_t epoch, uint64_t lsn, body, key, headers, int priority,
               double delay, ttl, timeout, durability):
    """Add one message and tag it, in one commit: its Receipt."""
    cdef Store store = queue.store
    cdef Draft draft
    cdef Placed placed
    cdef uint64_t due, expiry
    cdef uint8_t flags
    store.check_writable()
    store.level_of(durability)
    queue.native()
    if priority < 0 or priority > 9:
        raise ValueError(f"priority is 0 to 9, not {priority}")
    if isinstance(body, str):
        raise TypeError("a body is bytes-like: encode text first")
    due, expiry = moments(store.h.os.clock_wall_ns(store.h.os), delay, ttl)
    flags = (ROTA_FRAME_DUE if due else 0) | (ROTA_FRAME_EXPIRES if expiry else 0)
    draft_begin(&draft, store.h)
    try:
        add_message(store, &draft, queue.number, body, encode_attributes(key, headers, due, expiry), priority, flags)
        draft_op(&draft, ROTA_OP_PUT, <uint8_t>priority, <uint16_t>queue.number, 0, 1, ROTA_PUT_DATED if flags else 0,
                 NULL, 0)
        draft_op(&draft, ROTA_OP_TAG, ROTA_TAG_OWN_PUT, <uint16_t>queue.number, 0, epoch, lsn, <const char *>extra,
                 len(extra))
        draft.queue_created = queue.created_lsn
        draft.token_generation = queue.token_generation
        draft.token_number = queue.token_number
        submit(store, &draft, SPACE_PUT, &placed, deadline_of(timeout))
    finally:
        draft_end(&draft)
    store.settle_durability(placed.end_lsn, durability)
    return new_receipt(store, placed.base_id, 1, placed.end_lsn)


def settle_tagged(Message message not None, uint32_t queue, bytes extra, uint64_t epoch, uint64_t lsn, durability):
    """Tag a claimed message and settle it, in one commit.  Raises LeaseLost, Killed, StaleClerk, Conflict, NotFound."""
    cdef Store store = message.store
    cdef Draft draft
    cdef Settle settle
    cdef Placed placed
    if not message.claimed():
        raise errors.StateError("the message is settled")
    store.level_of(durability)
    draft_begin(&draft, store.h)
    try:
        draft_op(&draft, ROTA_OP_TAG, ROTA_TAG_GET, <uint16_t>queue, message.id, epoch, lsn, <const char *>extra,
                 len(extra))
        draft_op(&draft, ROTA_OP_ACK, message.run.level, message.run.queue, message.id, message.id, 1, NULL, 0)
        fill_settle(&settle, &message.run, message.id, message.id, 1, False)
        draft_settle(&draft, &settle)
        submit(store, &draft, SPACE_SETTLE, &placed, -1.0)
        message.state = SETTLED
    except errors.Killed:
        message.killed()
        raise
    finally:
        draft_end(&draft)
    store.settle_durability(placed.end_lsn, durability)
