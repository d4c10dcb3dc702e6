"""Who is to blame for a death: which messages its owner had looked at, and the verdict on each of its records.

What holds, under the main lock:

1. One shown message of a dead owner is charged; of several none is, all become suspects.
2. Of several that one transaction took beside a suspect, the suspect that it took first is charged and stays one, the others
   become suspects: a transaction that needs them all gets them all, and its deaths come to an end.
3. All verdicts of an owner are written before its first record is freed, and one that stands is never changed.
"""

from engine.control cimport *
from engine.failpoint cimport *
from engine.pool cimport *

from rota._core.holding cimport is_member, shown_of
from rota._core.lane cimport *
from rota._core.slots cimport *


cdef uint32_t shown_members(rota_handle *h, uint32_t index, uint64_t *ids, uint32_t limit, bint opening) noexcept nogil:
    """Ids of the record's members that were shown, at most `limit`; returns how many there are at least."""
    cdef rota_claim *record = &h.claims[index]
    cdef rota_queue *queue = queue_at(h, record.queue)
    cdef uint64_t end = record.first_id + shown_of(record)
    cdef uint32_t count = 0, number, i
    cdef Found found
    if queue == NULL or record.level > 9 or shown_of(record) == 0:
        return 0
    if record.kind == ROTA_CLAIM_SINGLE:
        if find(h, queue, record.first_id, &found) and rota_slot_live(found.slot.word) \
                and (opening or is_member(h, record, &found)):
            ids[0] = record.first_id
            return 1
        return 0
    if not find_in_lane(h, queue, record.level, record.first_id, &found) and found.number == 0:
        found.number = queue.lanes[record.level].head
        found.index = 0
    found.queue = queue
    found.level = record.level
    found.lane = &queue.lanes[record.level]
    number = found.number
    i = found.index
    while number and count < limit:
        found.number = number
        found.page = rota_page_at(h, number)
        if found.page.kind != ROTA_PAGE_CHUNK:
            break
        while i < chunk_count(found.lane, number, found.page) and count < limit:
            found.index = i
            found.slot = rota_page_slot(found.page, i)
            if found.slot.id >= end or found.slot.id > record.last_id:
                return count
            if found.slot.id >= record.first_id and rota_slot_state(found.slot.word) == ROTA_SLOT_FRESH \
                    and (opening or is_member(h, record, &found)):
                ids[count] = found.slot.id
                count += 1
            i += 1
        number = found.page.next
        i = 0
    return count


cdef bint belongs(rota_handle *h, uint32_t index, uint32_t process, uint32_t generation) noexcept nogil:
    cdef rota_claim *record = &h.claims[index]
    return record.state == ROTA_CLAIM_ACTIVE and record.process == process \
        and record.process_generation == generation


cdef void judge(rota_handle *h, uint32_t process, uint32_t generation, bint opening) noexcept nogil:
    """Write the verdict into every record of one dead owner."""
    cdef uint64_t ids[4]
    cdef uint32_t index, count, shown = 0, verdict = 0
    cdef uint32_t first = ROTA_CLAIM_COUNT
    cdef bint broken = False
    for index in range(h.control.claim_used):
        if belongs(h, index, process, generation):
            verdict = verdict or h.claims[index].verdict
            if shown < 2 or h.claims[index].flags & ROTA_CLAIM_FIRST:
                count = shown_members(h, index, ids, 2, opening)
                shown += count
                if count and h.claims[index].flags & ROTA_CLAIM_FIRST:
                    first = index
            broken = broken or h.claims[index].flags & ROTA_CLAIM_BROKEN
    if first < ROTA_CLAIM_COUNT:
        verdict = ROTA_VERDICT_SUSPECT
    elif verdict == 0:  # else an earlier reaper was here
        verdict = ROTA_VERDICT_CHARGE if shown == 1 and not (opening and broken) else ROTA_VERDICT_SUSPECT
    for index in range(h.control.claim_used):
        if belongs(h, index, process, generation) and h.claims[index].verdict == 0:
            if index == first:
                h.claims[index].verdict = ROTA_VERDICT_BOTH if shown > 1 else ROTA_VERDICT_CHARGE
            else:
                h.claims[index].verdict = verdict
    rota_failpoint(h.failpoints, ROTA_AT_REAP_VERDICT)
