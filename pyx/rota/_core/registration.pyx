"""Registrations: what a registrant's last tagged operation on a queue was, and its tag.

What holds:

1. A registration is one small page, found by a hash of queue and name; registrations of one hash form a list, and so
   do those of one queue, with which they go.  A tag that does not fit goes on in a second small page.
2. It changes only with the commit that carries the operation, so tag, id and operation belong together.
3. Each change raises `lsn` to the end of its commit, and one that is older is passed over: an image that was taken
   while others went on, and the replay from its begin, come to the same.
4. Whoever holds an old epoch, or saw an older change than the last, is refused by admit, before a byte is written.
"""

from libc.string cimport memcmp, memcpy, memset

from engine.control cimport *
from engine.crc32c cimport rota_crc32c, rota_mix64
from engine.format cimport *
from engine.pool cimport *
from engine.scan cimport rota_op_begin, rota_op_cursor, rota_op_next
from engine.status cimport *

from rota._core.lane cimport queue_at

cdef enum:
    LIST_STEPS = 1 << 16


# --- finding ---------------------------------------------------------------------------------------------------------


cdef uint64_t hash_of(uint32_t queue, const uint8_t *name, uint32_t length) noexcept nogil:
    cdef uint64_t sum = rota_crc32c(0, name, length)
    cdef uint64_t mixed = rota_mix64(<uint64_t>queue << 32 | sum)
    return mixed if mixed else 1


cdef inline rota_table *table_of(rota_handle *h) noexcept nogil:
    return &h.control.tables[ROTA_TABLE_REGISTRATIONS]


cdef Registration *page_of(rota_handle *h, uint32_t number) noexcept nogil:
    cdef rota_page *page = rota_page_at(h, number)
    return <Registration *>page if number and page.kind == ROTA_PAGE_REGISTRATION else NULL


cdef bint is_named(Registration *registration, uint32_t queue, const uint8_t *name, uint32_t length) noexcept nogil:
    return registration.queue == queue and registration.name_length == length \
        and memcmp(registration + 1, name, length) == 0


cdef Registration *registration_find(rota_handle *h, uint32_t queue, const uint8_t *name,
                                     uint32_t length) noexcept nogil:
    """The registration of that name at that queue, or NULL.  Under the main lock."""
    cdef rota_record *record = rota_table_find(h, table_of(h), hash_of(queue, name, length))
    cdef Registration *registration
    cdef uint32_t steps = 0
    if record == NULL or length > ROTA_NAME_LENGTH_MAX:
        return NULL
    registration = page_of(h, <uint32_t>record.a)
    while registration != NULL and steps < LIST_STEPS:
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


# --- tags ------------------------------------------------------------------------------------------------------------


cdef bint registration_fits(const Registration *registration) noexcept nogil:
    """Whether its lengths can be: the control file is untrusted."""
    return registration.name_length <= ROTA_NAME_LENGTH_MAX and registration.tag_length <= ROTA_TAG_LENGTH_MAX


cdef inline uint32_t first_part(const Registration *registration, uint32_t length) noexcept nogil:
    """Bytes of a tag of that length that lie behind the name."""
    cdef uint32_t room = ROTA_SMALL_PAGE - <uint32_t>sizeof(Registration) - registration.name_length
    return length if length < room else room


cdef rota_page *rest_of(rota_handle *h, const Registration *registration) noexcept nogil:
    cdef rota_page *page = rota_page_at(h, registration.more)
    return page if registration.more and page.kind == ROTA_PAGE_TAG else NULL


cdef void registration_tag(rota_handle *h, const Registration *registration, uint8_t *to) noexcept nogil:
    """Copy the tag, tag_length bytes; the lengths were checked (registration_fits)."""
    cdef uint32_t part = first_part(registration, registration.tag_length)
    cdef rota_page *rest
    memcpy(to, <const uint8_t *>(registration + 1) + registration.name_length, part)
    if part < registration.tag_length:
        rest = rest_of(h, registration)
        if rest != NULL:
            memcpy(to + part, rest + 1, registration.tag_length - part)
        else:
            memset(to + part, 0, registration.tag_length - part)


cdef void save_range(rota_handle *h, uint8_t *begin, uint64_t length) noexcept nogil:
    """Save the lines of some bytes of a page."""
    cdef uint8_t *line = begin
    while line < begin + length:
        rota_save(h, line)
        line = <uint8_t *>((<size_t>line & ~<size_t>63) + 64)


cdef int registration_set_tag(rota_handle *h, Registration *registration, const uint8_t *tag,
                              uint32_t length) noexcept nogil:
    """Store a tag; the line of the fields is saved.  ROTA_DISK_FULL: there was no page for its rest."""
    cdef uint32_t part = first_part(registration, length)
    cdef uint8_t *begin = <uint8_t *>(registration + 1) + registration.name_length
    cdef rota_page *rest = rest_of(h, registration)
    if part < length and rest == NULL:
        registration.more = rota_page_take_small(h, ROTA_PAGE_TAG)
        if registration.more == 0:
            return ROTA_DISK_FULL
        rest = rota_page_at(h, registration.more)
    elif part == length and rest != NULL:
        rota_page_give(h, registration.more)
        registration.more = 0
    save_range(h, begin, part)
    memcpy(begin, tag, part)
    if part < length:
        save_range(h, <uint8_t *>(rest + 1), length - part)
        memcpy(rest + 1, tag + part, length - part)
    registration.tag_length = <uint16_t>length
    return ROTA_OK


# --- admitting -------------------------------------------------------------------------------------------------------


cdef uint64_t epoch_in_draft(const Draft *draft, const uint8_t *end, uint32_t queue, const uint8_t *name,
                             uint32_t length) noexcept nogil:
    """The epoch that an operation before `end` of the same draft registers that name with; 0: none does."""
    cdef rota_op_cursor cursor
    cdef rota_op op
    cdef rota_tag tag
    cdef const uint8_t *extra
    cdef uint64_t epoch = 0
    cursor_of(draft, &cursor)
    while rota_op_next(&cursor, &op, &extra) and extra < end:
        if op.kind == ROTA_OP_REGISTER and op.queue == queue and read_tag(&op, extra, &tag) \
                and tag.name_length == length and memcmp(extra + sizeof(tag), name, length) == 0:
            epoch = op.a if op.a else 1
    return epoch


cdef void cursor_of(const Draft *draft, rota_op_cursor *cursor) noexcept nogil:
    rota_op_begin(cursor, draft.bytes, <rota_commit_header *>draft.bytes)
    cursor.left = draft.op_bytes
    cursor.count = draft.op_count


cdef int admit_one(rota_handle *h, const Draft *draft, const rota_op *op, const uint8_t *extra,
                   rota_error *error) noexcept nogil:
    cdef rota_tag tag
    cdef Registration *found
    cdef uint64_t epoch, made = 0
    cdef const uint8_t *name = extra + sizeof(tag)
    if not read_tag(op, extra, &tag):
        return rota_fail(error, ROTA_STATE, NULL, 0, "a registration has a name and a tag that are too long")
    if queue_at(h, op.queue) == NULL:
        return rota_fail(error, ROTA_NOT_FOUND, NULL, 0, "the queue of the registration was destroyed")
    found = registration_find(h, op.queue, name, tag.name_length)
    if op.kind != ROTA_OP_REGISTER:
        made = epoch_in_draft(draft, extra, op.queue, name, tag.name_length)
    if found == NULL:
        if op.kind == ROTA_OP_REGISTER or made:
            return ROTA_OK
        return rota_fail(error, ROTA_NOT_FOUND, NULL, 0, "it is not registered any more: nothing was changed")
    epoch = found.epoch if found.epoch > made else made
    if op.b and op.b != found.lsn:
        return rota_fail_compared(error, ROTA_CONFLICT, NULL, 0, op.b, found.lsn, "somebody changed this registration "
                                  "meanwhile, nothing was changed: look at it again")
    if op.kind == ROTA_OP_REGISTER and op.detail & ROTA_REGISTER_RAISE and op.a <= epoch:
        return rota_fail_compared(error, ROTA_CONFLICT, NULL, 0, op.a, epoch, "another one connected meanwhile, "
                                  "nothing was changed: take the next epoch")
    if op.a and (op.a < epoch or (op.a != epoch and op.kind != ROTA_OP_REGISTER)):
        return rota_fail_compared(error, ROTA_STALE_CLERK, NULL, 0, op.a, epoch, "a younger connection uses this "
                                  "registration, nothing was changed: stop")
    return ROTA_OK


cdef int admit_registrations(rota_handle *h, const Draft *draft, rota_error *error) noexcept nogil:
    """Whether each registration is there and as its writer believes.  Under the main lock."""
    cdef rota_op_cursor cursor
    cdef rota_op op
    cdef const uint8_t *extra
    cdef int status
    cursor_of(draft, &cursor)
    while rota_op_next(&cursor, &op, &extra):
        if op.kind == ROTA_OP_TAG or op.kind == ROTA_OP_REGISTER or op.kind == ROTA_OP_DEREGISTER:
            status = admit_one(h, draft, &op, extra, error)
            if status != ROTA_OK:
                return status
    return ROTA_OK


cdef bint is_of_queue(const rota_queue *queue, uint64_t lsn) noexcept nogil:
    """Whether a commit that ends at `lsn` means this queue; a checkpoint may know a later one of that number."""
    return queue != NULL and queue.created_lsn < lsn


# --- applying --------------------------------------------------------------------------------------------------------


cdef void enter_queue(rota_handle *h, rota_queue *queue, Registration *registration, uint32_t number) noexcept nogil:
    """Link a new page in front of the queue's list, which begins at page.next of the queue."""
    cdef rota_page *first
    rota_save(h, queue)
    registration.page.next = queue.page.next
    registration.page.previous = 0
    if queue.page.next:
        first = rota_page_at(h, queue.page.next)
        rota_save(h, first)
        first.previous = number
    queue.page.next = number
    queue.page.count += 1


cdef void leave_queue(rota_handle *h, rota_queue *queue, Registration *registration) noexcept nogil:
    cdef rota_page *other
    rota_save(h, queue)
    queue.page.count -= 1
    if registration.page.previous:
        other = rota_page_at(h, registration.page.previous)
        rota_save(h, other)
        other.next = registration.page.next
    else:
        queue.page.next = registration.page.next
    if registration.page.next:
        other = rota_page_at(h, registration.page.next)
        rota_save(h, other)
        other.previous = registration.page.previous


cdef int apply_register(rota_handle *h, const rota_op *op, const uint8_t *extra, uint64_t lsn) noexcept nogil:
    """Make it, or raise the epoch of what is there; nothing else of it changes.  lsn: behind the commit."""
    cdef rota_tag tag
    cdef rota_queue *queue = queue_at(h, op.queue)
    cdef Registration *registration
    cdef rota_record *record
    cdef uint32_t number
    cdef const uint8_t *name = extra + sizeof(rota_tag)
    if not read_tag(op, extra, &tag):
        return ROTA_CORRUPT
    if not is_of_queue(queue, lsn):
        return ROTA_OK
    registration = registration_find(h, op.queue, name, tag.name_length)
    if registration != NULL:
        if lsn < registration.lsn or (op.a <= registration.epoch
                                      and (registration.stable or not op.detail & ROTA_REGISTER_STABLE)):
            return ROTA_OK
        rota_save(h, &registration.hash)
        if op.a > registration.epoch:
            registration.epoch = op.a
        registration.stable |= op.detail & ROTA_REGISTER_STABLE
        registration.lsn = lsn
        return ROTA_OK
    number = rota_page_take_small(h, ROTA_PAGE_REGISTRATION)
    if number == 0:
        return ROTA_DISK_FULL
    registration = <Registration *>rota_page_at(h, number)
    # The page may have been given back in this very section, so what is stored is saved.
    save_range(h, <uint8_t *>registration + sizeof(rota_page),
               sizeof(Registration) - sizeof(rota_page) + tag.name_length)
    memset(<uint8_t *>registration + sizeof(rota_page), 0, sizeof(Registration) - sizeof(rota_page))
    registration.hash = hash_of(op.queue, name, tag.name_length)
    registration.queue = op.queue
    registration.epoch = op.a
    registration.lsn = lsn
    registration.stable = op.detail & ROTA_REGISTER_STABLE
    registration.name_length = tag.name_length
    memcpy(registration + 1, name, tag.name_length)
    rota_save(h, table_of(h))
    record = rota_table_put(h, table_of(h), registration.hash)
    if record == NULL:
        return ROTA_DISK_FULL
    registration.next = <uint32_t>record.a
    record.a = number
    enter_queue(h, queue, registration, number)
    return ROTA_OK


cdef int apply_tag(rota_handle *h, const rota_op *op, const uint8_t *extra,
                   const rota_commit_header *header) noexcept nogil:
    cdef rota_tag tag
    cdef Registration *registration
    cdef uint64_t lsn = header.lsn + header.length
    cdef const uint8_t *name = extra + sizeof(rota_tag)
    if not read_tag(op, extra, &tag):
        return ROTA_CORRUPT
    registration = registration_find(h, op.queue, name, tag.name_length)
    if registration == NULL or lsn < registration.lsn or not is_of_queue(queue_at(h, op.queue), lsn):
        return ROTA_OK
    rota_save(h, &registration.hash)
    registration.kind = op.detail & 0x7f
    registration.id = header.base_id + op.id if op.detail & 0x80 else op.id
    registration.lsn = lsn
    return registration_set_tag(h, registration, name + tag.name_length, tag.tag_length)


cdef void unlink_hash(rota_handle *h, Registration *registration, uint32_t number) noexcept nogil:
    """Take it out of the list of its hash."""
    cdef rota_record *record = rota_table_find(h, table_of(h), registration.hash)
    cdef Registration *before
    cdef uint32_t steps = 0
    if record == NULL:
        return
    if record.a == number:
        if registration.next:
            rota_save(h, record)
            record.a = registration.next
        else:
            rota_save(h, table_of(h))
            rota_table_remove(h, table_of(h), registration.hash)
        return
    before = page_of(h, <uint32_t>record.a)
    while before != NULL and before.next != number and steps < LIST_STEPS:
        before = page_of(h, before.next)
        steps += 1
    if before != NULL and before.next == number:
        rota_save(h, &before.hash)
        before.next = registration.next


cdef void forget(rota_handle *h, Registration *registration) noexcept nogil:
    """Give back its pages; the list of its queue is the caller's."""
    cdef uint32_t number = rota_page_number(h, registration)
    unlink_hash(h, registration, number)
    if rest_of(h, registration) != NULL:
        rota_page_give(h, registration.more)
    rota_page_give(h, number)


cdef void apply_deregister(rota_handle *h, const rota_op *op, const uint8_t *extra, uint64_t lsn) noexcept nogil:
    cdef rota_tag tag
    cdef rota_queue *queue = queue_at(h, op.queue)
    cdef Registration *registration
    if not is_of_queue(queue, lsn) or not read_tag(op, extra, &tag):
        return
    registration = registration_find(h, op.queue, extra + sizeof(rota_tag), tag.name_length)
    if registration == NULL or lsn < registration.lsn:
        return
    leave_queue(h, queue, registration)
    forget(h, registration)


cdef void registrations_drop(rota_handle *h, rota_queue *queue) noexcept nogil:
    """The registrations of a queue that goes go with it.  The queue's page is given back by the caller."""
    cdef Registration *registration = page_of(h, queue.page.next)
    cdef uint32_t following
    while registration != NULL:
        following = registration.page.next
        forget(h, registration)
        registration = page_of(h, following)
