"""The journal of a transaction: its operations in their order; what they become in the commit, and their undoing.

What holds:

1. An entry is a message or a batch that it claimed, the receipt of a put, or a tuple that begins with what it is.
2. Undoing goes from the end, so what a transaction took of its own puts goes back in order.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.control cimport *
from engine.format cimport *
from engine.handle cimport rota_handle

from rota._core.answering cimport draft_answer
from rota._core.batch cimport Batch
from rota._core.draft cimport *
from rota._core.giving cimport claimed_again
from rota._core.message cimport Message, fill_settle
from rota._core.pending cimport UNDONE, PendingReceipt, drop_taken
from rota._core.queue cimport Queue
from rota._core.store cimport Store
from rota._core.tombs cimport killed_between, was_killed

cdef enum:
    SETTLED = 2


cdef PendingReceipt next_own(list journal, uint32_t queue):
    """The receipt whose message this transaction would get next, or None."""
    cdef PendingReceipt receipt, best = None
    for entry in journal:
        if type(entry) is PendingReceipt:
            receipt = entry
            if receipt.queue == queue and receipt.taken < receipt.made and not receipt.flags & ROTA_FRAME_DUE \
                    and not receipt.has_key \
                    and (best is None or receipt.level > best.level):
                best = receipt
    return best


cdef Message own_message(Store store, Draft *draft, object queue, PendingReceipt receipt):
    cdef rota_frame *frame = <rota_frame *>draft.frames + receipt.first + receipt.taken
    cdef char *data = <char *>draft.data + frame.offset
    cdef Message message = Message.__new__(Message)
    message.store = store
    message.queue = queue
    message.run.level = receipt.level
    message._body = PyBytes_FromStringAndSize(data + frame.attribute_bytes, frame.body_length)
    if frame.attribute_bytes:
        message._attributes = PyBytes_FromStringAndSize(data, frame.attribute_bytes)
    message._time_ns = store.h.os.clock_wall_ns(store.h.os)
    return message


cdef int add_put(Draft *draft, PendingReceipt last, uint32_t first, uint32_t count, uint8_t flags) except -1:
    draft_op(draft, ROTA_OP_PUT, last.level, last.queue, first, count,
             (ROTA_PUT_DATED if flags else 0) | (ROTA_PUT_ANSWER if last.is_answer else 0), NULL, 0)
    draft_created(draft, last.created)
    return 0


cdef int add_puts(Draft *draft, list journal, bint any_taken) except -1:
    """PUT operations; those of one lane that follow each other are one."""
    cdef PendingReceipt receipt, last = None
    cdef uint32_t count = 0, first = 0
    cdef uint8_t flags = 0
    if any_taken:
        drop_taken(draft, journal)
    draft.put_count = 0
    for entry in journal:
        if type(entry) is not PendingReceipt:
            continue
        receipt = entry
        if receipt.taken == receipt.made:
            continue
        if last is not None and (last.queue != receipt.queue or last.level != receipt.level
                                 or last.created != receipt.created or last.is_answer != receipt.is_answer):
            add_put(draft, last, first, count, flags)
            last = None
        if last is None:
            first = receipt.first
            count = 0
            flags = 0
        count += receipt.made - receipt.taken
        flags |= receipt.flags
        last = receipt
    if last is not None:
        add_put(draft, last, first, count, flags)
    return 0


cdef int add_keys(Draft *draft, list journal) except -1:
    """DEDUP operations of the puts that are left."""
    cdef PendingReceipt receipt
    for entry in journal:
        if type(entry) is PendingReceipt:
            receipt = entry
            if receipt.has_key and receipt.made > receipt.taken:
                draft_op(draft, ROTA_OP_DEDUP, ROTA_DEDUP_OWN_PUT, receipt.queue, receipt.first, receipt.key[0],
                         receipt.key[1], NULL, 0)
    return 0


cdef int add_settlements(Store store, Draft *draft, list journal, bint by_id) except -1:
    cdef Message message
    cdef Settle settle
    cdef object claimed
    cdef uint32_t i
    for entry in journal:
        claimed = entry
        if type(entry) is tuple:
            if <int>(<tuple>entry)[0] == KILL:
                draft_op(draft, ROTA_OP_KILL, 0, entry[1], entry[2], 0, 0, NULL, 0)
                draft_answer(store.h, draft, entry[1], entry[2], ROTA_REPLY_CANCELLED)
            if <int>(<tuple>entry)[0] != FOREIGN:
                continue
            claimed = (<tuple>entry)[1]
        if type(claimed) is Message:
            message = claimed
            draft_op(draft, ROTA_OP_ACK, message.run.level, message.run.queue, message.id, message.id, 1, NULL, 0)
            fill_settle(&settle, &message.run, message.id, message.id, 1, False)
            draft_settle(draft, &settle)
        elif type(claimed) is Batch:
            (<Batch>claimed).add_acks(draft, by_id)
    for i in range(draft.settle_count):
        draft.settles[i].strict = 1
    return 0


cdef int add_registrations(Draft *draft, list journal, int wanted) except -1:
    """REGISTER or DEREGISTER operations."""
    cdef bytes extra
    for entry in journal:
        if type(entry) is tuple and <int>(<tuple>entry)[0] == wanted:
            registration = entry[1]
            extra = registration.encode()
            draft_op(draft, ROTA_OP_REGISTER if wanted == REGISTER else ROTA_OP_DEREGISTER, registration.stable,
                     registration.queue_number, 0, registration.epoch, 0, <const char *>extra, len(extra))
    return 0


cdef int add_tags(Draft *draft, list journal) except -1:
    """TAG operations, the last one of each registration."""
    cdef dict last = {}
    cdef bytes extra
    cdef PendingReceipt receipt
    cdef uint64_t id
    cdef uint8_t kind
    for entry in journal:
        if type(entry) is tuple and <int>(<tuple>entry)[0] == TAG:
            last[entry[1].key] = entry
    for _, registration, tag, of, expected_lsn in last.values():
        extra = registration.encode(tag)
        kind, id = ROTA_TAG_GET, 0
        if of is False:
            pass
        elif type(of) is Message:
            id = (<Message>of).id
            extra = registration.encode(tag, (<Message>of).run.queue)
        elif of is not None:
            receipt = of
            if receipt.made > receipt.taken:
                kind, id = ROTA_TAG_OWN_PUT, receipt.first + receipt.made - receipt.taken - 1
        elif draft.message_count:
            kind, id = ROTA_TAG_OWN_PUT, draft.message_count - 1
        draft_op(draft, ROTA_OP_TAG, kind, registration.queue_number, id, registration.epoch, expected_lsn,
                 <const char *>extra, len(extra))
    return 0


cdef bint changes(list journal, object registration, int wanted) except -1:
    """Whether an entry of that kind is about the registration."""
    for entry in journal:
        if type(entry) is tuple and <int>(<tuple>entry)[0] == wanted and entry[1].key == registration.key:
            return True
    return False


cdef int settle_entry(object entry) except -1:
    """The commit settled what this entry of the journal stands for."""
    cdef object claimed = entry
    if type(entry) is tuple:
        if <int>(<tuple>entry)[0] != FOREIGN and <int>(<tuple>entry)[0] != OWN:
            return 0
        claimed = entry[1] if <int>(<tuple>entry)[0] == FOREIGN else entry[2]
    if type(claimed) is Message:
        (<Message>claimed).state = SETTLED
    elif type(claimed) is Batch:
        (<Batch>claimed).settled()
    return 0


cdef list undo(list undone):
    """Undo entries of the journal, the last first; returns the messages and batches that are to be given back."""
    cdef list claims = []
    cdef PendingReceipt receipt
    cdef object entry
    for entry in reversed(undone):
        if type(entry) is PendingReceipt:
            (<PendingReceipt>entry).state = UNDONE
        elif type(entry) is not tuple:
            claimed_again(entry)
            claims.append(entry)
        elif <int>(<tuple>entry)[0] == FOREIGN:
            claimed_again(entry[1])
        elif <int>(<tuple>entry)[0] == OWN:
            receipt = entry[1]
            receipt.taken -= 1
            (<Message>entry[2]).state = SETTLED  # it does not exist any more
        elif <int>(<tuple>entry)[0] == DROP:
            (<PendingReceipt>entry[1]).taken = entry[2]
    claims.reverse()
    return claims


cdef uint64_t first_killed(rota_handle *h, list journal) except? 0:
    """The id of a message that the journal's claims held when it was killed, or 0."""
    cdef object claimed
    cdef Batch batch
    cdef uint64_t killed
    cdef uint32_t i
    for entry in journal:
        claimed = entry
        if type(entry) is tuple and <int>(<tuple>entry)[0] == FOREIGN:
            claimed = entry[1]
        if type(claimed) is Message:
            if was_killed(h, (<Message>claimed).id):
                return (<Message>claimed).id
        elif type(claimed) is Batch:
            batch = claimed
            for i in range(batch.run_count):
                killed = killed_between(h, batch.runs[i].first_id, batch.runs[i].last_id)
                if killed:
                    return killed
    return 0


cdef bint holds(list journal, object id) except -1:
    """Whether a claim of the journal has this message."""
    cdef object claimed
    for entry in journal:
        claimed = entry
        if type(entry) is tuple and <int>(<tuple>entry)[0] == FOREIGN:
            claimed = entry[1]
        if type(claimed) is Message and (<Message>claimed).id == id:
            return True
        if type(claimed) is Batch and id in (<Batch>claimed).ids:
            return True
    return False


cdef uint32_t records_of(object entry) except? 0:
    """So many claim records stand for this entry; a message out of a batch shares one with others."""
    cdef object claimed = entry
    if type(entry) is tuple and <int>(<tuple>entry)[0] == FOREIGN:
        claimed = (<tuple>entry)[1]
    if type(claimed) is Message:
        return 1 if (<Message>claimed).batch is None else 0
    return (<Batch>claimed).run_count if type(claimed) is Batch else 0


cdef Queue beside(Queue queue, list journal, Py_ssize_t *counted, uint32_t *records):
    """A handle to claim by, for which what the transaction holds itself is not in the way of a suspect, nor a suspect in
    the way of the rest.  Counts the records of the entries that were not counted yet."""
    cdef Queue other
    while counted[0] < len(journal):
        records[0] += records_of(journal[counted[0]])
        counted[0] += 1
    if records[0] == 0:
        return queue
    other = Queue.__new__(Queue)
    other.store = queue.store
    other.repository = queue.repository
    other.name = queue.name
    other.number = queue.number
    other.created_lsn = queue.created_lsn
    other.token_generation = queue.token_generation
    other.token_number = queue.token_number
    other.token_id = queue.token_id
    other.held = records[0]
    return other
