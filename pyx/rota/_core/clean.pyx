"""Getting room back in the log: a checkpoint where that frees something, else copying what lives out of the segments
that hold least of it.

What holds:

1. All of it happens under the job lock; who waited for it while another one made room does nothing.
2. A segment is emptied when at most three quarters of it live; one that lives more is never copied, it stays.
3. A copy keeps id, attributes and place in the order.  What ended or moved since it was read is left out, checked
   under the main lock right before the append; apply does not trust that check, so a repeated one loses nothing.
4. Nothing is copied unless it fits, with the checkpoint behind it, into the room that is left.
5. A round that won nothing ends the job: ROTA_FULL, and the next call looks again only when something was logged.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, qsort
from libc.string cimport memset

from engine.control cimport *
from engine.failpoint cimport *
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.status cimport *

from rota._core.append cimport Placed, SPACE_JOB, append_locked, free_segments
from rota._core.checkpoint cimport checkpoint_fits, checkpoint_gains, checkpoint_holding
from rota._core.checkpoint cimport job_enter, job_leave, job_slice
from rota._core.draft cimport Draft, Envelope, draft_begin, draft_end, draft_message, draft_op, draft_seal
from rota._core.lock cimport lock_enter, lock_leave
from rota._core.provide cimport append_provide
from rota._core.sync cimport sync_to
from rota._core.survivors cimport *

cdef enum:
    ROUNDS_MAX = 8
    VICTIMS_MAX = 16        # looked at in one round
    COMMIT_FRAMES = 256
    COMMIT_BYTES = 256 << 10
    REBUILDS_MAX = 3

# What one round works on.
ctypedef struct Round:
    Survivors survivors
    Reading reading
    uint64_t *bytes         # by file: what its copies take
    uint8_t *refused        # by file: lives too much, or cannot be read
    uint64_t copied
    uint64_t unreadable     # messages

# When this process found nothing to win, and in what: another look needs another log.
ctypedef struct Hopeless:
    rota_handle *h
    uint64_t tail_lsn

cdef Hopeless hopeless


# --- choosing --------------------------------------------------------------------------------------------------------


cdef inline uint64_t usable(rota_handle *h) noexcept nogil:
    return h.segment_size - ROTA_SEGMENT_HEADER_SIZE


cdef uint64_t room_left(rota_handle *h) noexcept nogil:
    """Bytes that the log can still take."""
    cdef uint64_t used = h.control.tail_lsn % h.segment_size
    return free_segments(h) * usable(h) + (h.segment_size - used if used else 0)


cdef bint may_empty(rota_handle *h, const Round *round, uint32_t file) noexcept nogil:
    cdef rota_segment *segment = &h.control.segments[file]
    return segment.state == ROTA_SEGMENT_SEALED and not round.refused[file] and not round.survivors.wanted[file] \
        and segment.end_lsn <= h.control.durable_lsn and segment.frames > segment.dead


cdef int next_victim(rota_handle *h, const Round *round, bint by_share) noexcept nogil:
    """The sealed segment with the fewest live frames, or with the lowest share of them; -1: none."""
    cdef rota_segment *segment
    cdef uint32_t file, count = h.control.segment_count
    cdef uint64_t weight, lowest = <uint64_t>-1
    cdef int best = -1
    if count > ROTA_SEGMENT_COUNT_MAX:
        count = ROTA_SEGMENT_COUNT_MAX
    for file in range(count):
        segment = &h.control.segments[file]
        if not may_empty(h, round, file):
            continue
        weight = segment.frames - segment.dead
        if by_share:
            weight = (weight << 20) // segment.frames
        if weight < lowest:
            lowest = weight
            best = <int>file
    return best


cdef void measure(rota_handle *h, Round *round) noexcept nogil:
    """What the copies of each wanted file would take."""
    cdef uint64_t i, length = 0
    cdef uint32_t file
    for i in range(round.survivors.count):
        file = rota_slot_file(round.survivors.entries[i].place)
        if survivor_size(h, &round.survivors.entries[i], &length):
            round.bytes[file] += length
        else:
            round.refused[file] = 1
            round.unreadable += 1


cdef uint32_t choose(rota_handle *h, Round *round) noexcept nogil:
    """Keep those victims that are worth it and fit into the room.  Returns how many."""
    cdef uint64_t total = 0
    cdef uint32_t file, kept = 0
    for file in range(ROTA_SEGMENT_COUNT_MAX):
        if not round.survivors.wanted[file]:
            continue
        if round.bytes[file] > usable(h) // 4 * 3:
            round.refused[file] = 1
        if round.refused[file] or not checkpoint_fits(h, total + round.bytes[file] + round.bytes[file] // 8):
            round.survivors.wanted[file] = 0
            continue
        total += round.bytes[file] + round.bytes[file] // 8
        kept += 1
    return kept


# --- copying ---------------------------------------------------------------------------------------------------------


cdef int by_place(const void *one, const void *other) noexcept nogil:
    cdef uint64_t x = (<const Survivor *>one).place
    cdef uint64_t y = (<const Survivor *>other).place
    return 1 if x > y else (-1 if x < y else 0)


cdef uint64_t draft_copies(rota_handle *h, Round *round, Draft *draft, uint64_t first, uint64_t limit) noexcept nogil:
    """Add survivors from `first` on; returns the first that is not in the draft any more."""
    cdef Survivor *entry
    cdef Envelope envelope
    cdef uint64_t i = first, most = h.segment_size // 16
    if most > COMMIT_BYTES:
        most = COMMIT_BYTES
    while i < limit and draft.message_count < COMMIT_FRAMES:
        entry = &round.survivors.entries[i]
        if not entry.stale and round.survivors.wanted[rota_slot_file(entry.place)]:
            if not survivor_read(h, entry, &round.reading) \
                    or round.reading.frame.body_length + 65536 // 8 > usable(h) - 4096:
                entry.stale = 1
                round.unreadable += 1
                round.refused[rota_slot_file(entry.place)] = 1
            elif draft.message_count and draft.data_bytes + round.reading.frame.body_length > most:
                break
            else:
                envelope.attributes = round.reading.attributes
                envelope.attribute_bytes = round.reading.attribute_bytes
                envelope.queue = entry.queue
                envelope.priority = entry.level
                envelope.flags = ROTA_FRAME_COPIED \
                    | (round.reading.frame.flags & (ROTA_FRAME_DUE | ROTA_FRAME_EXPIRES))
                draft_message(draft, &envelope, round.reading.body, round.reading.frame.body_length, entry.id)
        i += 1
    return i


cdef uint32_t mark_stale(rota_handle *h, Round *round, uint64_t first, uint64_t end) noexcept nogil:
    """Under the main lock: how many of them do not live there any more."""
    cdef Survivor *entry
    cdef uint64_t i
    cdef uint32_t found = 0
    for i in range(first, end):
        entry = &round.survivors.entries[i]
        if not entry.stale and not survivor_lives(h, entry):
            entry.stale = 1
            found += 1
    return found


cdef int append_copies(rota_handle *h, Round *round, Draft *draft, uint64_t first, uint64_t end, bint insist,
                       rota_error *error) noexcept nogil:
    """ROTA_RETRY: some ended meanwhile, build it again without them.  ROTA_FULL: the rest belongs to the checkpoint."""
    cdef Placed placed
    cdef int status
    while True:
        status = lock_enter(h, error)
        if status != ROTA_OK:
            return status
        if mark_stale(h, round, first, end) and not insist:
            lock_leave(h)
            return ROTA_RETRY
        status = ROTA_FULL
        if checkpoint_fits(h, 2 * draft.length):
            status = append_locked(h, draft, SPACE_JOB, &placed, error)
        lock_leave(h)
        if status != ROTA_RETRY:
            return status
        status = append_provide(h, draft, SPACE_JOB, &placed, True, error)
        if status != ROTA_OK:
            return status


cdef int copy_some(rota_handle *h, Round *round, uint64_t first, uint64_t *end, rota_error *error) noexcept nogil:
    """One commit of copies, from `first` on."""
    cdef Draft draft
    cdef uint32_t builds = 0
    cdef int status = ROTA_RETRY
    end[0] = round.survivors.count
    while status == ROTA_RETRY:
        draft_begin(&draft, h)
        draft.flags = ROTA_COMMIT_COPIES
        end[0] = draft_copies(h, round, &draft, first, end[0])
        if draft.message_count == 0:
            draft_end(&draft)
            return ROTA_OK
        draft_op(&draft, ROTA_OP_COPY, 0, ROTA_QUEUE_NONE, 0, draft.message_count, 0, NULL, 0)
        status = draft_seal(&draft)
        if status == ROTA_OK:
            status = append_copies(h, round, &draft, first, end[0], builds >= REBUILDS_MAX, error)
        else:
            rota_fail(error, status, NULL, 0, "no memory for copying messages")
        if status == ROTA_OK:
            round.copied += draft.message_count
            h.control.copied_messages += draft.message_count
        draft_end(&draft)
        builds += 1
    rota_failpoint(h.failpoints, ROTA_AT_CLEAN_COPIED)
    return status


cdef int copy_all(rota_handle *h, Round *round, rota_error *error) noexcept nogil:
    """Every survivor of the chosen segments, in the order of their places."""
    cdef uint64_t at = 0
    cdef int status = ROTA_OK
    qsort(round.survivors.entries, round.survivors.count, sizeof(Survivor), by_place)
    while at < round.survivors.count and status == ROTA_OK:
        status = copy_some(h, round, at, &at, error)
    return ROTA_OK if status == ROTA_FULL and round.copied else status


# --- rounds ----------------------------------------------------------------------------------------------------------


cdef int look(rota_handle *h, Round *round, rota_error *error) noexcept nogil:
    """Take some candidates and see what lives in them.  ROTA_FULL: there is none."""
    cdef int i, file
    memset(round.survivors.wanted, 0, ROTA_SEGMENT_COUNT_MAX)
    memset(round.bytes, 0, ROTA_SEGMENT_COUNT_MAX * sizeof(uint64_t))
    round.survivors.count = 0
    for i in range(VICTIMS_MAX):
        file = next_victim(h, round, i & 1)
        if file < 0:
            break
        round.survivors.wanted[file] = 1
    else:
        i = VICTIMS_MAX
    if i == 0:
        return ROTA_FULL
    return survivors_collect(h, &round.survivors, error)


cdef int one_round(rota_handle *h, Round *round, rota_error *error) noexcept nogil:
    """Empty some segments and free them.  ROTA_FULL: there is none that is worth it."""
    cdef uint32_t kept = 0
    cdef int status
    while kept == 0:
        status = look(h, round, error)
        if status != ROTA_OK:
            return status
        measure(h, round)
        kept = choose(h, round)
        if kept == 0 and not refuses_more(h, round):
            return ROTA_FULL
    status = copy_all(h, round, error)
    return checkpoint_holding(h, error) if status == ROTA_OK else status


cdef bint refuses_more(rota_handle *h, Round *round) noexcept nogil:
    """After a choice that kept nothing: whether other candidates are left to be looked at."""
    cdef uint64_t i
    cdef bint more = False
    for i in range(ROTA_SEGMENT_COUNT_MAX):
        more = more or round.refused[i] == 1
        if round.refused[i]:
            round.refused[i] = 2  # seen: the next time it says nothing new
    return more and next_victim(h, round, False) >= 0


cdef int clean(rota_handle *h, rota_error *error) noexcept nogil:
    """Rounds until a segment more is free."""
    cdef Round round
    cdef uint64_t before = room_left(h), start = before
    cdef int i, status = ROTA_OK
    memset(&round, 0, sizeof(Round))
    round.survivors.wanted = <uint8_t *>calloc(ROTA_SEGMENT_COUNT_MAX, 1)
    round.refused = <uint8_t *>calloc(ROTA_SEGMENT_COUNT_MAX, 1)
    round.bytes = <uint64_t *>calloc(ROTA_SEGMENT_COUNT_MAX, sizeof(uint64_t))
    if round.survivors.wanted == NULL or round.refused == NULL or round.bytes == NULL:
        status = rota_fail(error, ROTA_NO_MEMORY, NULL, 0, "no memory for making room")
    for i in range(ROUNDS_MAX):
        if status != ROTA_OK:
            break
        status = one_round(h, &round, error)
        if room_left(h) >= start + usable(h):
            break
        if status == ROTA_OK and room_left(h) <= before:
            status = ROTA_FULL
        before = room_left(h)
    h.control.unreadable = round.unreadable
    if status == ROTA_FULL:
        status = ROTA_OK if room_left(h) > start else rota_fail(
            error, ROTA_FULL, "control", 0, "the repository is full of messages (%u of its segments are free, %llu "
            "messages cannot be read)", free_segments(h), <unsigned long long>round.unreadable)
    free(round.survivors.wanted)
    free(round.survivors.entries)
    free(round.refused)
    free(round.bytes)
    reading_end(&round.reading)
    return status


cdef int reclaim_holding(rota_handle *h, rota_error *error) noexcept nogil:
    """Make room.  The job lock is held."""
    cdef uint32_t before = free_segments(h)
    cdef int status = ROTA_OK
    if checkpoint_gains(h) or h.control.checkpoint_bytes == 0:
        status = checkpoint_holding(h, error)
        if status != ROTA_OK or free_segments(h) > before:
            return status
    if hopeless.h == h and hopeless.tail_lsn == h.control.tail_lsn:
        return rota_fail(error, ROTA_FULL, "control", 0, "the repository is full of messages")
    status = sync_to(h, h.control.tail_lsn, error)
    if status == ROTA_OK:
        status = clean(h, error)
    if status == ROTA_FULL:
        hopeless.h = h
        hopeless.tail_lsn = h.control.tail_lsn
    return status


cdef int reclaim(rota_handle *h, bint patient, rota_error *error) noexcept nogil:
    """Make room in the log, or wait for the one who does.  ROTA_OK: look again; ROTA_FULL: there is nothing to win.

    Who is not patient waits for a slice only, and is told ROTA_RETRY while another one is at it.
    """
    cdef uint64_t before = h.control.checkpoints
    cdef int status = job_enter(h, error) if patient else job_slice(h, error)
    if status != ROTA_OK:
        return status
    if h.control.checkpoints == before:
        status = reclaim_holding(h, error)
    job_leave(h)
    return status
