"""Registrations: what a registrant's last tagged operation on a queue was, and its tag.

What holds:

1. A registration is one small page, found by a hash of queue and name; registrations of one hash form a list.
2. It changes only with the commit that carries the operation, so tag, id and operation belong together.
3. It goes with its queue: what a replay meets of an older queue of that number, or of none, is passed over.
4. The name is never longer than ROTA_NAME_LENGTH_MAX, the tag than ROTA_TAG_LENGTH_MAX: both fit into the page.
"""

from libc.string cimport memcmp, memcpy, memset

from engine.control cimport *
from engine.crc32c cimport rota_crc32c, rota_mix64
from engine.format cimport *
from engine.pool cimport *
from engine.status cimport *

from rota._core.lane cimport queue_at


cdef enum:
    LIST_MOST = 1 << 16     # registrations of one hash


cdef uint64_t hash_of(uint32_t queue, const uint8_t *name, uint32_t length) noexcept nogil:
    cdef uint64_t sum = rota_crc32c(0, name, length)
    cdef uint64_t mixed = rota_mix64(<uint64_t>queue << 32 | sum)
    return mixed if mixed else 1


cdef Registration *page_of(rota_handle *h, uint32_t number) noexcept nogil:
    cdef rota_page *page = rota_page_at(h, number)
    return <Registration *>page if number and page.kind == ROTA_PAGE_REGISTRATION else NULL


cdef bint is_named(Registration *registration, uint32_t queue, const uint8_t *name, uint32_t length) noexcept nogil:
    return registration.queue == queue and registration.name_length == length \
        and memcmp(registration + 1, name, length) == 0


cdef Registration *registration_find(rota_handle *h, uint32_t queue, const uint8_t *name,
                                     uint32_t length) noexcept nogil:
    """The registration of that name at that queue, or NULL.  Under the main lock."""
    cdef rota_record *record = rota_table_find(h, &h.control.tables[ROTA_TABLE_REGISTRATIONS],
                                               hash_of(queue, name, length))
    cdef Registration *registration
    cdef uint32_t steps = 0
    if record == NULL or length > ROTA_NAME_LENGTH_MAX:
        return NULL
    registration = page_of(h, <uint32_t>record.a)
    while registration != NULL and steps < LIST_MOST:
        if is_named(registration, queue, name, length):
            return registration
        registration = page_of(h, registration.next)
        steps += 1
    return NULL


cdef bint read_tag(const rota_op *op, const uint8_t *extra, rota_tag *tag) noexcept nogil:
    if op.extra_bytes < sizeof(rota_tag):
        return False
    memcpy(tag, extra, sizeof(rota_tag))
    return tag.name_length <= ROTA_NAME_LENGTH_MAX and tag.tag_length <= ROTA_TAG_LENGTH_MAX \
        and sizeof(rota_tag) + tag.name_length + tag.tag_length <= op.extra_bytes


cdef void save_page(rota_handle *h, Registration *registration) noexcept nogil:
    """Save all lines of a registration; a tag may lie in any of them."""
    cdef uint32_t line
    for line in range(ROTA_SMALL_PAGE // 64):
        rota_save(h, <uint8_t *>registration + 64 * line)


cdef bint is_of_queue(rota_handle *h, uint32_t number, uint64_t lsn) noexcept nogil:
    """Whether the queue that a commit at `lsn` names is the one of that number; a checkpoint may know a later one."""
    cdef rota_queue *queue = queue_at(h, number)
    return queue != NULL and queue.created_lsn <= lsn


cdef int apply_register(rota_handle *h, const rota_op *op, const uint8_t *extra, uint64_t lsn) noexcept nogil:
    cdef rota_tag tag
    cdef Registration *registration
    cdef rota_record *record
    cdef uint32_t number
    cdef const uint8_t *name = extra + sizeof(rota_tag)
    if not read_tag(op, extra, &tag):
        return ROTA_CORRUPT
    if not is_of_queue(h, op.queue, lsn):
        return ROTA_OK
    registration = registration_find(h, op.queue, name, tag.name_length)
    if registration != NULL:
        rota_save(h, registration)
        rota_save(h, &registration.hash)
        if op.a > registration.epoch:
            registration.epoch = op.a
        registration.stable = op.detail & 1
        return ROTA_OK
    number = rota_page_take_small(h, ROTA_PAGE_REGISTRATION)
    if number == 0:
        return ROTA_DISK_FULL
    registration = <Registration *>rota_page_at(h, number)
    memset(<uint8_t *>registration + sizeof(rota_page), 0, ROTA_SMALL_PAGE - sizeof(rota_page))
    registration.hash = hash_of(op.queue, name, tag.name_length)
    registration.queue = op.queue
    registration.epoch = op.a
    registration.stable = op.detail & 1
    registration.name_length = tag.name_length
    memcpy(registration + 1, name, tag.name_length)
    rota_save(h, &h.control.tables[ROTA_TABLE_REGISTRATIONS])
    record = rota_table_put(h, &h.control.tables[ROTA_TABLE_REGISTRATIONS], registration.hash)
    if record == NULL:
        return ROTA_DISK_FULL
    registration.next = <uint32_t>record.a
    record.a = number
    return ROTA_OK


cdef int apply_tag(rota_handle *h, const rota_op *op, const uint8_t *extra,
                   const rota_commit_header *header) noexcept nogil:
    cdef rota_tag tag
    cdef Registration *registration
    cdef const uint8_t *name = extra + sizeof(rota_tag)
    if not read_tag(op, extra, &tag):
        return ROTA_CORRUPT
    registration = registration_find(h, op.queue, name, tag.name_length)
    if registration == NULL or not is_of_queue(h, op.queue, header.lsn):
        return ROTA_OK
    save_page(h, registration)
    registration.kind = op.detail & 0x7f
    registration.id = header.base_id + op.id if op.detail & 0x80 else op.id
    registration.lsn = header.lsn
    registration.tag_length = tag.tag_length
    memcpy(<uint8_t *>(registration + 1) + registration.name_length, name + tag.name_length, tag.tag_length)
    return ROTA_OK


cdef void apply_deregister(rota_handle *h, const rota_op *op, const uint8_t *extra, uint64_t lsn) noexcept nogil:
    cdef rota_tag tag
    cdef Registration *registration
    if not read_tag(op, extra, &tag) or not is_of_queue(h, op.queue, lsn):
        return
    registration = registration_find(h, op.queue, extra + sizeof(rota_tag), tag.name_length)
    if registration != NULL:
        forget(h, registration)


cdef Registration *first_of(rota_handle *h, uint64_t page, uint32_t queue) noexcept nogil:
    """The first registration of a queue in a list of one hash, or NULL."""
    cdef Registration *registration = page_of(h, <uint32_t>page)
    cdef uint32_t steps = 0
    while registration != NULL and registration.queue != queue:
        registration = page_of(h, registration.next) if steps < LIST_MOST else NULL
        steps += 1
    return registration


cdef void registrations_drop(rota_handle *h, uint32_t queue) noexcept nogil:
    """All registrations of a queue that is destroyed.  Thousands of them overflow the undo area, so that a death in
    this very section means a rebuild."""
    cdef rota_table *table = &h.control.tables[ROTA_TABLE_REGISTRATIONS]
    cdef Registration *registration
    cdef rota_page *root
    cdef rota_page *bucket
    cdef rota_record *record
    cdef uint32_t i, j
    if table.count == 0 or table.root == 0 or table.depth > ROTA_TABLE_DEPTH_MAX:
        return
    root = rota_page_at(h, table.root)
    for i in range(<uint32_t>1 << table.depth):
        if i and rota_table_buckets(root)[i] == rota_table_buckets(root)[i - 1]:
            continue
        bucket = rota_page_at(h, rota_table_buckets(root)[i])
        j = 0
        while bucket.kind == ROTA_PAGE_TABLE_BUCKET and j < ROTA_BUCKET_RECORDS:
            record = rota_bucket_records(bucket) + j
            registration = first_of(h, record.a, queue) if record.key else NULL
            if registration != NULL:
                forget(h, registration)  # another record may take this place
            else:
                j += 1


cdef void forget(rota_handle *h, Registration *registration) noexcept nogil:
    """Take it out of the list of its hash, and give its page back."""
    cdef Registration *before
    cdef uint32_t number = rota_page_number(h, registration)
    cdef uint64_t hash = registration.hash
    cdef rota_record *record
    record = rota_table_find(h, &h.control.tables[ROTA_TABLE_REGISTRATIONS], hash)
    if record.a == number:
        if registration.next:
            rota_save(h, record)
            record.a = registration.next
        else:
            rota_save(h, &h.control.tables[ROTA_TABLE_REGISTRATIONS])
            rota_table_remove(h, &h.control.tables[ROTA_TABLE_REGISTRATIONS], hash)
    else:
        before = page_of(h, <uint32_t>record.a)
        while before != NULL and before.next != number:
            before = page_of(h, before.next)
        if before != NULL:
            rota_save(h, &before.hash)
            before.next = registration.next
    rota_page_give(h, number)
