"""Looking through a queue without a claim: ids of what lives.

What holds: a page of ids is read under the lock; what happens between two pages may or may not be seen.
"""

from libc.stdint cimport uint32_t, uint64_t

from engine.control cimport *
from engine.handle cimport rota_handle
from engine.pool cimport *
from engine.status cimport *

from rota._core.lock cimport lock_enter, lock_leave
from rota._core.store cimport Store


cdef list list_ids(Store store, rota_queue *queue, uint64_t after, uint32_t limit):
    """Under the lock, one page of slots at a time."""
    cdef rota_handle *h = store.h
    cdef list found = []
    cdef rota_error error
    cdef uint32_t level, number, i, steps
    cdef rota_page *page
    cdef rota_slot *slot
    cdef uint64_t ids[1024]
    cdef uint32_t count
    for level in range(10):
        count = 0
        if lock_enter(h, &error) != ROTA_OK:
            store.fail(&error)
        number = queue.lanes[level].head
        steps = 0
        while number and count < limit and count < 1024 and steps < 1 << 24:
            page = rota_page_at(h, number)
            steps += 1
            for i in range(rota_page_slots(page) if number != queue.lanes[level].tail else queue.lanes[level].tail_index):
                slot = rota_page_slot(page, i)
                if slot.id > after and rota_slot_live(slot.word) and count < limit and count < 1024:
                    ids[count] = slot.id
                    count += 1
            number = page.next
        lock_leave(h)
        for i in range(count):
            found.append(ids[i])
    found.extend(straggler_ids(store, queue, after))
    found.sort()
    return found[:limit]


cdef list straggler_ids(Store store, rota_queue *queue, uint64_t after):
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
            if record.key > after and record.b == queue.number:
                found.append(record.key)
    return found
