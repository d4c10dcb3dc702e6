"""Many bodies at once: frame headers under one guard, then the bodies under another, in groups.

What holds:

1. Headers that follow each other, as those of one commit do, are copied at once; sums are made three side by side.
2. What can be read plainly (one segment, no attributes, no compressed block, a sum that matches) is; a place in the
   list that stays None is left to the careful way, read_slot().
3. The header of a commit is checked once; the caller compares its claims at the end, as for any batch.
"""

from cpython.ref cimport PyObject, Py_INCREF
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.atomics cimport *
from engine.control cimport *
from engine.crc32c cimport rota_crc32c_rows
from engine.format cimport *
from engine.handle cimport rota_handle
from engine.platform cimport rota_piece
from engine.pool cimport rota_page_at, rota_page_slots, rota_ref_index, rota_ref_page

from rota._core.reading cimport Reading
from rota._core.store cimport Store

cdef extern from *:
    """
    /* Replace an item of a list of the right length, and take over the reference to the new one. */
    static inline void rota_list_replace(PyObject *list, Py_ssize_t at, PyObject *item)
    {
        PyObject *old = PyList_GET_ITEM(list, at);
        PyList_SET_ITEM(list, at, item);
        Py_DECREF(old);
    }
    /* The first lines of a body, which is copied some hundred steps later; never a fault. */
    #define rota_prefetch_body(from, to) \
        do { __builtin_prefetch(from); __builtin_prefetch((const char *)(from) + 64); \
             __builtin_prefetch((char *)(to) + 64, 1); } while (0)
    static inline PyObject *rota_bytes_new(Py_ssize_t length) { return PyBytes_FromStringAndSize(NULL, length); }
    static inline void *rota_bytes_of(PyObject *bytes) { return PyBytes_AS_STRING(bytes); }
    """
    void rota_list_replace(list items, Py_ssize_t at, PyObject *item) noexcept
    PyObject *rota_bytes_new(Py_ssize_t length) except NULL
    void rota_prefetch_body(const void *source, void *to) noexcept
    void *rota_bytes_of(PyObject *bytes) noexcept

cdef enum:
    GROUP = 64

ctypedef struct Group:
    uint8_t *base           # of the segment that all of them lie in
    uint64_t offsets[64]    # of the frame headers
    rota_frame frames[64]
    rota_piece pieces[64]
    uint32_t places[64]     # in the group, of each piece
    uint32_t count
    uint32_t piece_count


cdef uint32_t load_frames(Store store, const uint64_t *refs, uint32_t count, Group *group) noexcept:
    """Copy the frame headers of the next messages that lie in one segment; 0 when they cannot be had."""
    cdef rota_handle *h = store.h
    cdef uint32_t i, file = 0, number = 0, slots = 0
    cdef uint64_t word, offset
    cdef rota_page *page = NULL
    group.count = 0
    for i in range(count if count < GROUP else GROUP):
        if page == NULL or rota_ref_page(refs[i]) != number:
            number = rota_ref_page(refs[i])
            page = rota_page_at(h, number)
            slots = rota_page_slots(page)
        if rota_ref_index(refs[i]) >= slots:
            break
        word = rota_load_acquire_u64(&(<rota_slot *>(page + 1) + rota_ref_index(refs[i])).word)
        offset = rota_slot_cell(word) * ROTA_CELL
        if i == 0:
            file = rota_slot_file(word) % ROTA_SEGMENT_COUNT_MAX
        if rota_slot_file(word) != file or offset < ROTA_SEGMENT_HEADER_SIZE or offset + ROTA_CELL > h.segment_size:
            break
        group.offsets[i] = offset
        group.count += 1
    group.base = h.segments[file].base
    if group.count == 0 or group.base == NULL:
        return 0
    return group.count if copy_frames(h, group) == 0 else 0


cdef int copy_frames(rota_handle *h, Group *group) noexcept nogil:
    """The headers, at once where they follow each other, which those of one commit do."""
    cdef uint64_t first = group.offsets[0]
    cdef uint32_t i
    for i in range(group.count):
        if group.offsets[i] != first + i * sizeof(rota_frame):
            break
    else:
        return h.os.copy_guarded(h.os, group.frames, group.base + first, group.count * sizeof(rota_frame))
    for i in range(group.count):
        group.pieces[i].to = &group.frames[i]
        group.pieces[i].source = group.base + group.offsets[i]
        group.pieces[i].length = sizeof(rota_frame)
    return h.os.gather_guarded(h.os, group.base, h.segment_size, group.pieces, group.count, False)


cdef inline bint in_commit(Store store, Group *group, uint32_t i, Reading *reading) noexcept:
    """Whether the header of the frame's commit is there (it is loaded when it is another than before) and fits."""
    cdef rota_handle *h = store.h
    cdef rota_frame *frame = &group.frames[i]
    cdef const uint8_t *commit
    if frame.back > group.offsets[i] - ROTA_SEGMENT_HEADER_SIZE or frame.back < sizeof(rota_commit_header):
        return False
    commit = group.base + group.offsets[i] - frame.back
    if reading.commit != commit:
        reading.commit = NULL
        if h.os.copy_guarded(h.os, &reading.header, commit, sizeof(rota_commit_header)) != 0:
            return False
        reading.commit = commit
    return reading.header.magic == ROTA_COMMIT_MAGIC \
        and group.offsets[i] - frame.back + reading.header.length <= h.segment_size \
        and <uint64_t>frame.offset + frame.body_length <= reading.header.length


cdef inline bint is_plain(const rota_frame *frame, const rota_commit_header *header, uint64_t id) noexcept:
    return frame.attribute_bytes == 0 and frame.flags & (ROTA_FRAME_BLOCK | ROTA_FRAME_COPIED) == 0 \
        and header.base_id + (frame.back - sizeof(rota_commit_header) - header.op_bytes) // ROTA_CELL == id


cdef int gather_bodies(Store store, const uint64_t *ids, const uint64_t *refs, uint32_t count, Reading *reading,
                       list bodies, uint32_t at, bint *gaps) except -1:
    """Fill bodies[at:], which is None, with what can be read plainly; returns how many places were looked at.
    `gaps` is set when some stay None."""
    cdef rota_handle *h = store.h
    cdef Group group
    cdef rota_frame *frame
    cdef rota_piece *piece
    cdef PyObject *body
    cdef uint32_t sums[64]
    cdef uint32_t i, made = 0
    cdef int status
    if load_frames(store, refs, count, &group) == 0:
        gaps[0] = True
        return 1
    rota_crc32c_rows(h.salt_crc, <uint8_t *>group.frames + 4, sizeof(rota_frame) - 4, group.count, sizeof(rota_frame), sums)
    piece = group.pieces
    for i in range(group.count):
        frame = &group.frames[i]
        if not in_commit(store, &group, i, reading) or not is_plain(frame, &reading.header, ids[i]):
            continue
        body = rota_bytes_new(frame.body_length)
        rota_list_replace(bodies, at + i, body)  # nobody sees it before its sum was compared
        piece.to = rota_bytes_of(body)
        piece.source = reading.commit + frame.offset
        piece.length = frame.body_length
        piece.sum = sums[i]
        rota_prefetch_body(piece.source, piece.to)
        group.places[made] = i
        piece += 1
        made += 1
    group.piece_count = made
    if group.piece_count < group.count:
        gaps[0] = True
    status = h.os.gather_guarded(h.os, group.base, h.segment_size, group.pieces, group.piece_count, True)
    for i in range(group.piece_count):
        if status != 0 or group.pieces[i].sum != group.frames[group.places[i]].crc:
            Py_INCREF(None)
            rota_list_replace(bodies, at + group.places[i], <PyObject *>None)
            gaps[0] = True
    return group.count
