"""Checkpoints: an image of the control file, as commits in the log, so that the log before it may go.

What holds:

1. Checkpoint, copying and freeing happen under the job lock, one at a time.  It is robust and guards no structure of
   its own: whoever gets it after a death begins anew, and blocks without a manifest that names them mean nothing.
2. The steps: begin = where the log goes on; walk; append the blocks; sync the log through the last; manifest; free.
   A crash before the manifest finds the checkpoint before with all its segments, one after it finds the new one.
3. Freed are the segments wholly below the begin in which the image has no live frame: what the image leaves out was
   settled by a commit that lies before the last block, so it is as durable as the image.
4. Blocks are appended only when all of them have room: half a checkpoint would eat the space that the next one needs.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from engine.atomics cimport *
from engine.control cimport *
from engine.crc32c cimport rota_crc32c
from engine.failpoint cimport *
from engine.format cimport *
from engine.image cimport ROTA_IMAGE_LAST, rota_image_segment
from engine.lock cimport *
from engine.pool cimport *
from engine.status cimport *

from rota._core.append cimport Placed, SPACE_JOB, free_segments
from rota._core.draft cimport Draft, draft_begin, draft_end, draft_op, draft_seal
from rota._core.image cimport Image, Stream, image_begin, image_end, image_join, image_walk
from rota._core.lock cimport lock_enter, lock_leave
from rota._core.manifest cimport manifest_reach, manifest_read, manifest_turns, manifest_write
from rota._core.provide cimport append_commit
from rota._core.sync cimport fail_log, sync_to

cdef enum:
    BLOCK_BYTES_MAX = 256 << 10
    BLOCK_OVERHEAD = 96 + 32 + 32    # header, operation, padding
    JOB_SLICE_NS = 50000000
    CLOSE_BYTES = 1 << 20

ctypedef struct Blocks:
    uint64_t first_lsn
    uint64_t end_lsn


# --- the job lock ----------------------------------------------------------------------------------------------------


cdef int job_slice(rota_handle *h, rota_error *error) noexcept nogil:
    """Take the job lock, sleeping for one slice at most: ROTA_RETRY when another one is still at it."""
    cdef int result = rota_lock_wait(&h.control.job_lock, JOB_SLICE_NS)
    if result == ROTA_LOCK_DEAD:
        rota_lock_repaired(&h.control.job_lock)
        result = ROTA_LOCK_TAKEN
    if result == ROTA_LOCK_TAKEN:
        h.control.job_owner = h.process + 1
        return ROTA_OK
    if result == ROTA_LOCK_BROKEN:
        return rota_fail(error, ROTA_DAMAGED_CONTROL, "control", 0, "the job lock cannot be repaired")
    return ROTA_RETRY


cdef int job_enter(rota_handle *h, rota_error *error) noexcept nogil:
    """Take the job lock, sleeping in slices, where no signal is asked for."""
    cdef int slices, status = ROTA_RETRY
    for slices in range(JOB_SLICES):
        status = job_slice(h, error)
        if status != ROTA_RETRY:
            return status
    return job_refused(h, error)


cdef int job_refused(rota_handle *h, rota_error *error) noexcept nogil:
    """Say who holds the job lock for too long."""
    cdef uint32_t owner, pid = 0
    owner = h.control.job_owner
    if 0 < owner <= ROTA_PROCESS_COUNT_MAX:
        pid = h.control.processes[owner - 1].pid
    return rota_fail(error, ROTA_LOCK_HELD, "control", 0, "process %u has been making room for a minute; continue or "
                     "kill it", pid)


cdef void job_leave(rota_handle *h) noexcept nogil:
    h.control.job_owner = 0
    rota_lock_leave(&h.control.job_lock)


# --- blocks ----------------------------------------------------------------------------------------------------------


cdef inline uint64_t block_bytes(rota_handle *h) noexcept nogil:
    """Of the stream in one block."""
    cdef uint64_t quarter = h.segment_size // 4 - BLOCK_OVERHEAD
    return quarter if quarter < BLOCK_BYTES_MAX else BLOCK_BYTES_MAX


cdef bint blocks_fit(rota_handle *h, uint64_t length) noexcept nogil:
    """Whether all blocks find room, with the end of each segment wasted."""
    cdef uint64_t block = block_bytes(h) + BLOCK_OVERHEAD
    cdef uint64_t needed = (length // block_bytes(h) + 1) * block + 4 * ROTA_PAGE_SIZE
    cdef uint64_t usable = h.segment_size - ROTA_SEGMENT_HEADER_SIZE - block
    cdef uint64_t rest = h.segment_size - h.control.tail_lsn % h.segment_size
    return needed <= free_segments(h) * usable + (rest - block if rest > block else 0)


cdef bint checkpoint_fits(rota_handle *h, uint64_t more) noexcept nogil:
    """Whether the next checkpoint finds room after so many more bytes of small commits.  Its size is estimated."""
    cdef rota_table *tables = h.control.tables
    cdef uint64_t image = h.control.checkpoint_bytes + h.control.checkpoint_bytes // 4 + 24 * (
        tables[ROTA_TABLE_HISTORY].count + tables[ROTA_TABLE_STRAGGLERS].count + tables[ROTA_TABLE_EXPIRY].count)
    return blocks_fit(h, image + more + more // 8)


cdef int append_block(rota_handle *h, Image *image, Stream *stream, uint64_t number, uint64_t from_byte,
                      uint32_t *sum, Placed *placed, rota_error *error) noexcept nogil:
    """One block of the stream; *sum goes on over it."""
    cdef uint64_t length = stream.length - from_byte
    cdef uint64_t described
    cdef bint last = True
    cdef Draft draft
    cdef int status
    if length > block_bytes(h):
        length = block_bytes(h)
        last = False
    sum[0] = rota_crc32c(sum[0], stream.bytes + from_byte, length)
    described = sum[0]
    if last:
        described |= (number + 1) << 32
    draft_begin(&draft, h)
    draft_op(&draft, ROTA_OP_CHECKPOINT, ROTA_IMAGE_LAST if last else 0, 0, number, image.begin, described,
             stream.bytes + from_byte, <uint32_t>length)
    status = draft_seal(&draft)
    if status == ROTA_OK:
        status = append_commit(h, &draft, SPACE_JOB, placed, error)
    else:
        rota_fail(error, status, NULL, 0, "no memory for a checkpoint")
    draft_end(&draft)
    rota_failpoint(h.failpoints, ROTA_AT_CHECKPOINT_BLOCK)
    return status


cdef int append_blocks(rota_handle *h, Image *image, Stream *stream, Blocks *blocks, rota_error *error) noexcept nogil:
    cdef uint64_t at = 0, number = 0
    cdef uint32_t sum = h.salt_crc
    cdef Placed placed
    cdef int status
    if not blocks_fit(h, stream.length):
        return rota_fail(error, ROTA_FULL, "control", 0, "there is no room for a checkpoint of %llu bytes",
                         <unsigned long long>stream.length)
    while at < stream.length:
        status = append_block(h, image, stream, number, at, &sum, &placed, error)
        if status != ROTA_OK:
            return status
        if number == 0:
            blocks.first_lsn = placed.lsn
        blocks.end_lsn = placed.end_lsn
        at += block_bytes(h)
        number += 1
    return ROTA_OK


# --- manifest and freeing --------------------------------------------------------------------------------------------


cdef int write_manifest(rota_handle *h, const Image *image, const Blocks *blocks, rota_error *error) noexcept nogil:
    """From here on recovery begins at the new begin.  Epochs that ended before it are dropped."""
    cdef rota_manifest_sector following
    cdef uint32_t i, first = 0
    cdef int status = manifest_read(h, error)
    if status != ROTA_OK:
        return status
    following = h.manifest
    following.checkpoint_begin = image.begin
    following.checkpoint_block = blocks.first_lsn
    following.checkpoint_end = blocks.end_lsn
    following.checkpoint_chain = image.chain
    if image.next_id > following.next_id_floor:
        following.next_id_floor = image.next_id
    if manifest_turns(&following, blocks.end_lsn) > following.reached_turns:
        following.reached_turns = manifest_turns(&following, blocks.end_lsn)
    while first + 1 < following.epoch_count and following.epochs[first + 1].start_lsn <= image.begin:
        first += 1
    memset(following.epochs, 0, sizeof(following.epochs))
    following.epoch_count -= first
    for i in range(following.epoch_count):
        following.epochs[i] = h.manifest.epochs[first + i]
    status = manifest_write(h, &following, error)
    if status == ROTA_LOG_FAILED:
        fail_log(h, error)
    return status


cdef uint32_t free_dead(rota_handle *h, const Image *image) noexcept nogil:
    """Give back what the durable image does not need, under the main lock.  Returns how many segments."""
    cdef rota_control *control = h.control
    cdef const rota_image_segment *noted
    cdef rota_segment *segment
    cdef uint32_t i, freed = 0
    for i in range(image.segment_count):
        noted = &image.segments[i]
        segment = &control.segments[noted.file]
        if segment.state != ROTA_SEGMENT_SEALED or segment.first_lsn != noted.first_lsn \
                or segment.end_lsn > image.begin or image.live[noted.file] != 0 or segment.pinned \
                or noted.file == control.log.tail_file:
            continue
        rota_save(h, segment)
        rota_save(h, &control.pool_limit)
        segment.state = ROTA_SEGMENT_FREE
        segment.next_free = control.free_segments
        control.free_segments = noted.file + 1
        control.free_segment_count += 1
        control.live_segments -= 1
        freed += 1
        rota_failpoint(h.failpoints, ROTA_AT_SEGMENT_FREED)
    rota_settle_undo(h)
    return freed


cdef void wake_space(rota_handle *h) noexcept nogil:
    rota_fence()
    if rota_load_relaxed_u32(&h.control.space_waiters):
        rota_fetch_add_u32(&h.control.space_sequence, 1)
        h.os.futex_wake(h.os, &h.control.space_sequence, 0x7fffffff)


# --- all of it -------------------------------------------------------------------------------------------------------


cdef int take(rota_handle *h, Image *image, Stream *stream, rota_error *error) noexcept nogil:
    """The steps in their order."""
    cdef rota_control *control = h.control
    cdef Blocks blocks
    cdef int status
    memset(&blocks, 0, sizeof(blocks))
    status = image_begin(h, image, error)
    rota_failpoint(h.failpoints, ROTA_AT_CHECKPOINT_BEGIN)
    if status == ROTA_OK:
        status = image_walk(h, image, error)
    rota_failpoint(h.failpoints, ROTA_AT_CHECKPOINT_WALKED)
    if status == ROTA_OK:
        status = image_join(h, image, stream, error)
    if status == ROTA_OK:
        status = append_blocks(h, image, stream, &blocks, error)
    if status == ROTA_OK:
        status = sync_to(h, blocks.end_lsn, error)
    rota_failpoint(h.failpoints, ROTA_AT_CHECKPOINT_SYNCED)
    if status == ROTA_OK:
        status = write_manifest(h, image, &blocks, error)
    rota_failpoint(h.failpoints, ROTA_AT_CHECKPOINT_MANIFEST)
    if status != ROTA_OK:
        return status
    control.checkpoint_begin = image.begin
    control.checkpoint_end = blocks.end_lsn
    control.checkpoint_bytes = stream.length
    status = lock_enter(h, error)
    if status != ROTA_OK:
        return status
    free_dead(h, image)
    lock_leave(h)
    control.checkpoints += 1
    wake_space(h)
    rota_failpoint(h.failpoints, ROTA_AT_CHECKPOINT_FREED)
    return ROTA_OK


cdef int checkpoint_holding(rota_handle *h, rota_error *error) noexcept nogil:
    """Take a checkpoint; the caller holds the job lock."""
    cdef Image image
    cdef Stream stream
    cdef int status
    memset(&stream, 0, sizeof(stream))
    status = take(h, &image, &stream, error)
    image_end(&image)
    free(stream.bytes)
    return status


cdef int checkpoint(rota_handle *h, rota_error *error) noexcept nogil:
    """Take a checkpoint now; ROTA_FULL when its blocks find no room."""
    cdef int status = job_enter(h, error)
    if status != ROTA_OK:
        return status
    status = checkpoint_holding(h, error)
    job_leave(h)
    return status


cdef int checkpoint_at_close(rota_handle *h, rota_error *error) noexcept nogil:
    """Take one unless the log since the last is short: a close costs no more than what was done before it."""
    cdef rota_control *control = h.control
    cdef uint64_t since = control.tail_lsn - control.checkpoint_begin
    cdef uint64_t enough = CLOSE_BYTES if CLOSE_BYTES < h.segment_size // 2 else h.segment_size // 2
    if control.checkpoint_bytes > enough:
        enough = control.checkpoint_bytes
    return checkpoint(h, error) if since > enough else ROTA_OK


cdef int note_reached(rota_handle *h, bint patient, rota_error *error) noexcept nogil:
    """Let the manifest know of each turn of the log that became durable: else the loss of its segment would not show."""
    cdef uint64_t durable_lsn = rota_load_acquire_u64(&h.control.durable_lsn)
    cdef int status
    if h.is_memory or manifest_turns(&h.manifest, durable_lsn) <= h.manifest.reached_turns:
        return ROTA_OK
    status = job_enter(h, error) if patient else job_slice(h, error)
    if status != ROTA_OK:
        return status
    status = manifest_reach(h, durable_lsn, error)
    if status == ROTA_LOG_FAILED:
        fail_log(h, error)
    job_leave(h)
    return status


cdef bint checkpoint_gains(rota_handle *h) noexcept nogil:
    """Whether a segment holds nothing that lives: sealed, or half full of what settles.  A hint, without the lock."""
    cdef rota_segment *segment
    cdef uint32_t file, count = h.control.segment_count
    if count > ROTA_SEGMENT_COUNT_MAX:
        count = ROTA_SEGMENT_COUNT_MAX
    for file in range(count):
        segment = &h.control.segments[file]
        if segment.state == ROTA_SEGMENT_SEALED and segment.dead >= segment.frames:
            return True
        if segment.state == ROTA_SEGMENT_ACTIVE and segment.dead >= h.control.log.tail_frames \
                and h.control.tail_lsn % h.segment_size > h.segment_size // 2 \
                and h.control.checkpoint_begin < h.control.tail_lsn - h.segment_size // 4:
            return True
    return False
