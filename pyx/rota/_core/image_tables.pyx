"""The hash tables of an image: stragglers, registrations and the keys of puts, a part for each hold of the main lock.

What holds:

1. Buckets are visited by ascending hash.  One that is split between two holds is split into two neighbours, so no
   record comes to lie where the walk was already, and one that is there all the time is seen once.
2. A message that moves leaves the table and enters it again within one hold of the lock: it is there all the time.
3. Keys are visited by ascending sequence, in which they come and, but for forgotten ones, go.
"""

from engine.control cimport *
from engine.format cimport *
from engine.image cimport *
from engine.pool cimport *
from engine.status cimport *

from rota._core.dedup cimport key_at, key_find
from rota._core.image cimport *
from rota._core.image_lanes cimport image_details, image_reserve
from rota._core.lock cimport lock_enter, lock_leave
from rota._core.lane cimport queue_at
from rota._core.registration cimport Registration, registration_fits, registration_tag

cdef enum:
    KEY_BYTES = 48
    KEY_STEPS = 2048    # sequences looked at in one hold of the lock


cdef rota_page *bucket_of(rota_handle *h, const rota_table *table, uint64_t hash, uint64_t *behind) noexcept nogil:
    """The bucket of that hash, and the first hash that is not in it any more (0: it is the last)."""
    cdef rota_page *root
    cdef rota_page *bucket
    cdef uint64_t span
    behind[0] = 0
    if table.root == 0 or table.depth > 13:
        return NULL
    root = rota_page_at(h, table.root)
    if root.kind != ROTA_PAGE_TABLE_ROOT:
        return NULL
    bucket = rota_page_at(h, (<uint32_t *>(root + 1))[hash >> (64 - table.depth) if table.depth else 0])
    if bucket.kind != ROTA_PAGE_TABLE_BUCKET or bucket.depth > table.depth:
        return NULL
    if bucket.depth:
        span = <uint64_t>1 << (64 - bucket.depth)
        behind[0] = hash - hash % span + span
    return bucket


cdef void put_straggler(rota_handle *h, Image *image, const rota_record *record) noexcept nogil:
    cdef rota_page *page = rota_page_at(h, rota_ref_page(record.a))
    cdef rota_slot *slot = rota_slot_at(h, record.a)
    cdef Stream *out = &image.stragglers
    if page.kind != ROTA_PAGE_STRAGGLERS or page.level > 9 or slot.id != record.key \
            or not rota_slot_live(slot.word) or not is_below(image, slot.word):
        return
    put_number(out, <uint64_t>page.queue + 1)
    put_byte(out, page.level)
    put_number(out, slot.id)
    put_number(out, rota_slot_file(slot.word))
    put_number(out, rota_slot_cell(slot.word))
    image_details(h, image, out, slot, record.c if record.c else slot.id)
    image.straggler_count += 1
    image.live[rota_slot_file(slot.word)] += 1


cdef int image_stragglers(rota_handle *h, Image *image, rota_error *error) noexcept nogil:
    """Buckets by ascending hash: a split between two holds moves no record to where the walk was already."""
    cdef rota_page *bucket
    cdef rota_record *records
    cdef uint64_t hash = 0
    cdef uint32_t i
    cdef int status
    while True:
        if not image_reserve(image):
            return image_no_memory(error)
        status = lock_enter(h, error)
        if status != ROTA_OK:
            return status
        bucket = bucket_of(h, &h.control.tables[ROTA_TABLE_STRAGGLERS], hash, &hash)
        if bucket != NULL:
            records = <rota_record *>(bucket + 1)
            for i in range(ROTA_BUCKET_RECORDS):
                if records[i].key:
                    put_straggler(h, image, &records[i])
        lock_leave(h)
        if hash == 0:
            break
    put_byte(&image.stragglers, 0)
    return ROTA_OK


cdef bint put_registration(rota_handle *h, Stream *out, const Registration *registration) noexcept nogil:
    """False: there is no room for it."""
    cdef uint64_t text = <uint64_t>registration.name_length + registration.tag_length
    if not registration_fits(registration):
        return True
    if out.length + 64 + text > out.size:
        return False
    put_number(out, <uint64_t>registration.queue + 1)
    put_byte(out, registration.kind)
    put_byte(out, registration.stable)
    put_u64(out, registration.id)
    put_u64(out, registration.lsn)
    put_u64(out, registration.epoch)
    put_bytes(out, &registration.name_length, 2)
    put_bytes(out, &registration.tag_length, 2)
    put_bytes(out, registration + 1, registration.name_length)
    registration_tag(h, registration, out.bytes + out.length)
    out.length += registration.tag_length
    return True


cdef bint put_registrations(rota_handle *h, Stream *out, rota_page *bucket) noexcept nogil:
    cdef rota_record *records = <rota_record *>(bucket + 1)
    cdef rota_page *page
    cdef uint32_t i, steps
    for i in range(ROTA_BUCKET_RECORDS):
        page = rota_page_at(h, <uint32_t>records[i].a)
        steps = 0
        while records[i].key and page.kind == ROTA_PAGE_REGISTRATION and steps < 1 << 16:
            if not put_registration(h, out, <Registration *>page):
                return False
            page = rota_page_at(h, (<Registration *>page).next)
            steps += 1
    return True


cdef int image_registrations(rota_handle *h, Image *image, rota_error *error) noexcept nogil:
    cdef Stream *out = &image.registrations
    cdef rota_page *bucket
    cdef uint64_t hash = 0, following = 0, before, room = 65536
    cdef bint fits
    cdef int status
    while True:
        if not stream_reserve(out, room):
            return image_no_memory(error)
        before = out.length
        status = lock_enter(h, error)
        if status != ROTA_OK:
            return status
        bucket = bucket_of(h, &h.control.tables[ROTA_TABLE_REGISTRATIONS], hash, &following)
        fits = bucket == NULL or put_registrations(h, out, bucket)
        lock_leave(h)
        if not fits:
            out.length = before
            room *= 2
            continue
        hash = following
        if hash == 0:
            break
    if not stream_reserve(out, 1):
        return image_no_memory(error)
    put_byte(out, 0)
    return ROTA_OK


cdef void put_key(rota_handle *h, Stream *out, uint32_t number, uint64_t sequence) noexcept nogil:
    cdef rota_record *order = key_at(h, number, sequence)
    cdef rota_record *found
    if order == NULL:
        return
    found = key_find(h, number, order.a, order.b)
    if found != NULL and found.b == sequence:
        put_number(out, <uint64_t>number + 1)
        put_u64(out, found.a)
        put_u64(out, order.c)
        put_u64(out, order.a)
        put_u64(out, order.b)


cdef int image_keys(rota_handle *h, Image *image, rota_error *error) noexcept nogil:
    """What each queue remembers of the keys of puts; nothing at all where there is none."""
    cdef Stream *out = &image.keys
    cdef rota_queue *queue
    cdef uint64_t sequence = 0, last
    cdef uint32_t number = 0
    cdef int status
    while number < h.control.queue_count:
        if not stream_reserve(out, KEY_STEPS * KEY_BYTES):
            return image_no_memory(error)
        status = lock_enter(h, error)
        if status != ROTA_OK:
            return status
        queue = queue_at(h, number)
        last = 0
        if queue != NULL:
            sequence = queue.key_first if sequence < queue.key_first else sequence
            last = sequence + KEY_STEPS if queue.key_next > sequence + KEY_STEPS else queue.key_next
            while sequence < last:
                put_key(h, out, number, sequence)
                sequence += 1
        if queue == NULL or sequence >= queue.key_next:
            number += 1
            sequence = 0
        lock_leave(h)
    if out.length:
        if not stream_reserve(out, 1):
            return image_no_memory(error)
        put_byte(out, 0)
    return ROTA_OK
