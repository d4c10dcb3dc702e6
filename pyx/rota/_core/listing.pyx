"""Looking through a queue without a claim: ids of what lives.

What holds: a page of ids is read under the lock; what happens between two pages may or may not be seen.
"""

from libc.stdint cimport uint32_t, uint64_t

from engine.atomics cimport *
from engine.control cimport *
from engine.handle cimport rota_handle
from engine.pool cimport *
from engine.status cimport *

from rota._core.lane cimport chunk_count, queue_at
from rota._core.lock cimport lock_leave, lock_slice
from rota._core.store cimport Store


cdef int page_of_ids(rota_handle *h, uint32_t queue_number, uint32_t level, uint64_t after, uint32_t limit,
                     uint64_t *ids, uint32_t *count, rota_error *error) noexcept nogil:
    """At most `limit` ids of one lane, in one section; chunks that end below `after` are passed over."""
    cdef rota_queue *queue
    cdef rota_page *page
    cdef rota_slot *slot
    cdef uint32_t number, i, steps = 0
    cdef int status = lock_slice(h, error)
    count[0] = 0
    if status != ROTA_OK:
        return status
    queue = queue_at(h, queue_number)
    number = queue.lanes[level].head if queue != NULL else 0
    while number and count[0] < limit and steps < 1 << 24:
        page = rota_page_at(h, number)
        steps += 1
        if page.kind != ROTA_PAGE_CHUNK:
            break
        if page.next == 0 or rota_page_at(h, page.next).first_id > after:
            for i in range(chunk_count(&queue.lanes[level], number, page)):
                slot = rota_page_slot(page, i)
                if slot.id > after and rota_slot_live(slot.word) and count[0] < limit:
                    ids[count[0]] = slot.id
                    count[0] += 1
        number = page.next
    lock_leave(h)
    return ROTA_OK


cdef list list_ids(Store store, rota_queue *queue, uint64_t after, uint32_t limit):
    """Ids above `after`, ascending, at most `limit`."""
    cdef rota_handle *h = store.h
    cdef list found = []
    cdef rota_error error
    cdef uint32_t level, i, count = 0, number = queue.number, wanted = limit if limit < 1024 else 1024
    cdef uint64_t ids[1024]
    cdef int status, slices = 0
    for level in range(10):
        status = ROTA_RETRY
        while store.again(&status, &slices, &error):
            with nogil:
                rota_fetch_add_u32(&h.calls, 1)
                status = page_of_ids(h, number, level, after, wanted, ids, &count, &error)
            rota_fetch_sub_u32(&h.calls, 1)
        if status != ROTA_OK:
            store.fail(&error)
        for i in range(count):
            found.append(ids[i])
    store.check()
    found.extend(straggler_ids(store, number, after))
    found.sort()
    return found[:wanted]


cdef list straggler_ids(Store store, uint32_t queue, uint64_t after):
    """Ids of messages that came with an older id."""
    cdef rota_handle *h = store.h
    cdef rota_table *table = &h.control.tables[ROTA_TABLE_STRAGGLERS]
    cdef list found = []
    cdef rota_page *root
    cdef rota_page *bucket
    cdef uint32_t i, j, number, last = 0
    cdef rota_record *record
    if table.count == 0 or table.root == 0 or table.depth > 13:
        return found
    root = rota_page_at(h, table.root)
    for i in range(1 << table.depth):
        number = (<uint32_t *>(root + 1))[i]
        if number == last:
            continue
        last = number
        bucket = rota_page_at(h, number)
        if bucket.kind != ROTA_PAGE_TABLE_BUCKET:
            continue
        for j in range(ROTA_BUCKET_RECORDS):
            record = <rota_record *>(bucket + 1) + j
            if record.key > after and record.b == queue:
                found.append(record.key)
    return found
