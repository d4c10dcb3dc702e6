"""What a transaction that did not commit gives back.

What holds:

1. What was shown goes back by commits of at most 256 messages, with counts; what nobody was shown goes back free.
2. A message that is lost or killed already is not ours to give: it is passed over.
"""

from libc.stdint cimport uint32_t, uint64_t

from engine.atomics cimport *
from engine.control cimport *
from engine.handle cimport rota_handle

from rota._core.answering cimport is_long
from rota._core.batch cimport Batch
from rota._core.draft cimport *
from rota._core.lane cimport queue_at
from rota._core.lease cimport return_unshown
from rota._core.message cimport Message, fill_settle, submit_settle
from rota._core.reap cimport draft_back, wake_queue
from rota._core.store cimport Store

from rota import errors

cdef enum:
    CLAIMED = 1
    SETTLED = 2
    IN_TRANSACTION = 3
    MESSAGES_PER_COMMIT = 256


cdef int claimed_again(object claimed) except -1:
    """The transaction does not settle it any more."""
    if isinstance(claimed, Message):
        if (<Message>claimed).state == IN_TRANSACTION:
            (<Message>claimed).state = CLAIMED
        return 0
    if (<Batch>claimed).state == IN_TRANSACTION:
        (<Batch>claimed).state = CLAIMED
    for message in (<Batch>claimed).messages or ():
        if message is not None:
            claimed_again(message)
    return 0


cdef int give_back(Store store, list claims, bint excused, object durability) except -1:
    """Messages and batches that a transaction claimed go back to their places."""
    cdef list shown = []
    cdef list batches = []
    for claimed in claims:
        if type(claimed) is Message:
            if (<Message>claimed).state == CLAIMED:
                shown.append(claimed)
        elif (<Batch>claimed).state == CLAIMED:
            shown.extend(shown_of_batch(<Batch>claimed))
            batches.append(claimed)
    while shown:
        return_some(store, shown, excused, durability)
    for batch in batches:
        give_rest(<Batch>batch)
    return 0


cdef int give_rest(Batch batch) except -1:
    """What is left of a batch goes back free."""
    cdef uint32_t i
    for i in range(batch.run_count):
        try:
            return_unshown(batch.store, &batch.runs[i])
        except (errors.LeaseLost, errors.Killed):
            continue  # nothing is left of it
        if queue_at(batch.store.h, batch.runs[i].queue) != NULL:
            wake_queue(batch.store.h, queue_at(batch.store.h, batch.runs[i].queue))
    return batch.settled()


cdef list shown_of_batch(Batch batch):
    """Its messages whose bodies reached user code, as far as the claims say."""
    cdef rota_handle *h = batch.store.h
    cdef list shown = []
    cdef uint64_t word
    cdef uint32_t i
    cdef bint any_shown = False
    for i in range(batch.run_count):
        word = rota_load_acquire_u64(&h.claims[batch.runs[i].claim % ROTA_CLAIM_COUNT].shown)
        any_shown = any_shown or <uint32_t>word
    if not any_shown:
        return shown
    try:
        batch.collect()
    except (errors.LeaseLost, errors.Killed):
        return shown
    for i in range(batch.count):
        word = rota_load_acquire_u64(&h.claims[batch.runs[batch.run_of[i]].claim % ROTA_CLAIM_COUNT].shown)
        if batch.id_list[i] < batch.runs[batch.run_of[i]].first_id + <uint32_t>word:
            message = batch[i]
            if (<Message>message).state == CLAIMED:
                shown.append(message)
    return shown


cdef int return_some(Store store, list shown, bint excused, object durability) except -1:
    """One commit for the first of them, which leave the list.  When one of them is lost, only that one leaves it."""
    cdef rota_handle *h = store.h
    cdef list part = shown[:MESSAGES_PER_COMMIT]
    cdef Draft draft
    cdef Settle settle
    cdef Message message
    cdef object lost = None
    draft_begin(&draft, h)
    try:
        for number, message in enumerate(part):
            if is_long(h, &draft):
                part = part[:number]
                break
            if queue_at(h, message.run.queue) == NULL:
                continue  # killed with its queue
            draft_back(h, &draft, queue_at(h, message.run.queue), message.id, <uint64_t>message.run.handouts + 1,
                       <uint64_t>message.run.excused + excused, 0, False)
            fill_settle(&settle, &message.run, message.id, message.id, 1, False)
            draft_settle(&draft, &settle)
        if draft.op_count:
            submit_settle(store, &draft, durability)
    except errors.NotFound:
        return 0  # the queue of a reply was destroyed meanwhile: again, without that reply
    except (errors.LeaseLost, errors.Killed) as error:
        lost = error
    finally:
        draft_end(&draft)
    if lost is not None:
        part = [message for message in part if (<Message>message).id == lost.expected] or part[:1]
    for message in part:
        if lost is None and queue_at(h, message.run.queue) != NULL:
            queue_at(h, message.run.queue).nacks += 1
        message.state = SETTLED
        shown.remove(message)
    return 0
