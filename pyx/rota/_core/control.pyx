"""The control file and the claims file: created, mapped, checked, grown.

What holds:

1. control_build() runs under the gate while nobody is attached; it empties the file and writes its fixed part anew.
   The claims file is kept when it was written since this boot, else it is emptied.  The page that says so stays
   through the building, or an open that dies inside would take the hand-outs with it.
2. One window of the largest size is mapped once; growth appears in it.  Bytes are written as zeros before pool_limit
   says that they are there, so a full disk is an error of growth and never a fault in a store.
3. A file of another boot, another repository, another C library or another pid namespace is refused by control_map().
"""

from libc.string cimport memcmp, memcpy, memset

from engine.control cimport *
from engine.format cimport *
from engine.lock cimport rota_lock_init
from engine.platform cimport (
    ROTA_OPEN_CREATE,
    ROTA_OPEN_READ,
    ROTA_OPEN_WRITE,
    rota_facts,
    rota_platform,
)
from engine.failpoint cimport ROTA_AT_CONTROL_CREATED, ROTA_AT_CONTROL_GROWN, rota_failpoint
from engine.status cimport *

from rota._core.failed cimport failed_create

cdef extern from *:
    """
    #include <limits.h>
    #include <pthread.h>
    #include <stddef.h>
    #if defined(__GLIBC__)
    #define ROTA_LIBC 1u
    #else
    #define ROTA_LIBC 2u
    #endif
    #define ROTA_MUTEX_BYTES ((unsigned)sizeof(pthread_mutex_t))
    #define ROTA_CONTROL_BYTES ((unsigned)sizeof(rota_control))
    """
    const uint32_t ROTA_LIBC
    const uint32_t ROTA_MUTEX_BYTES
    const uint32_t ROTA_CONTROL_BYTES

cdef enum:
    FIRST_EXTENT_BYTES = 1 << 20


cdef uint32_t abi_fingerprint() noexcept nogil:
    """Equal only where the locks and the structures in shared memory mean the same."""
    return ROTA_LIBC << 28 ^ ROTA_MUTEX_BYTES << 20 ^ ROTA_CONTROL_BYTES


cdef uint64_t control_window(uint64_t capacity) noexcept nogil:
    """Address space for the largest control file of this capacity: 32 bytes a message at the least message size."""
    return rota_round_up(ROTA_CONTROL_FIXED_BYTES + capacity + (256 << 20), ROTA_EXTENT_BYTES)


cdef int open_file(rota_handle *h, const char *name, int *fd, rota_error *error) noexcept nogil:
    cdef rota_facts facts
    cdef int result
    if fd[0] >= 0:
        return ROTA_OK
    result = h.os.open(h.os, h.directory_fd, name,
                       ROTA_OPEN_READ | ROTA_OPEN_WRITE | ROTA_OPEN_CREATE, 0o600)
    if result < 0:
        return rota_fail(error, result, name, 0, "the file cannot be opened")
    fd[0] = result
    result = h.os.facts(h.os, fd[0], &facts)
    if result < 0 or not facts.regular:
        return rota_fail(error, ROTA_CORRUPT, name, 0, "this is not a regular file")
    return ROTA_OK


cdef bint head_survives(rota_handle *h, bint *syncing) noexcept nogil:
    """Whether the old control file was written since this boot, for this repository; and in the middle of a sync."""
    cdef uint8_t boot[16]
    cdef uint8_t page[4096]
    if h.control_fd < 0 or h.os.pread(h.os, h.control_fd, page, 4096, 0) < 0:
        return False
    if h.os.boot_id(h.os, boot) < 0:
        return False
    cdef rota_control *old = <rota_control *>page
    syncing[0] = old.syncing != 0
    return (old.magic == ROTA_CONTROL_MAGIC and old.version == ROTA_CONTROL_VERSION
            and old.abi == abi_fingerprint() and memcmp(old.uuid, h.uuid, 16) == 0
            and memcmp(old.boot_id, boot, 16) == 0)


cdef int map_files(rota_handle *h, rota_error *error) noexcept nogil:
    cdef void *address = NULL
    cdef int result
    if h.control == NULL:
        result = h.os.map(h.os, h.control_fd, h.window_bytes, True, &address)
        if result < 0:
            return rota_fail(error, result, "control", 0, "the control file cannot be mapped")
        h.os.dont_fork(h.os, address, h.window_bytes)
        h.control = <rota_control *>address
        h.pool = <uint8_t *>address + ROTA_CONTROL_FIXED_BYTES
        h.window_pages = <uint32_t>((h.window_bytes - ROTA_CONTROL_FIXED_BYTES) // ROTA_SMALL_PAGE)
    if h.claims == NULL:
        result = h.os.map(h.os, h.claims_fd, h.claims_bytes, True, &address)
        if result < 0:
            return rota_fail(error, result, "claims", 0, "the claims file cannot be mapped")
        h.os.dont_fork(h.os, address, h.claims_bytes)
        h.claims = <rota_claim *>address
    return ROTA_OK


cdef int write_zeros(rota_handle *h, int fd, const char *name, uint64_t offset, uint64_t length,
                     rota_error *error) noexcept nogil:
    cdef int result = h.os.allocate(h.os, fd, offset, length)
    if result == 0:
        result = h.os.zero(h.os, fd, offset, length)
    if result < 0:
        return rota_fail(error, result, name, offset, "the file cannot grow; free some space")
    return ROTA_OK


cdef int claims_prepare(rota_handle *h, bint keep, rota_error *error) noexcept nogil:
    cdef rota_facts facts
    cdef int result
    h.claims_bytes = ROTA_CLAIM_COUNT * sizeof(rota_claim)
    if h.os.facts(h.os, h.claims_fd, &facts) == 0 and facts.size == h.claims_bytes and keep:
        return ROTA_OK
    result = h.os.truncate(h.os, h.claims_fd, 0)
    if result < 0:
        return rota_fail(error, result, "claims", 0, "the file cannot be emptied")
    return write_zeros(h, h.claims_fd, "claims", 0, h.claims_bytes, error)


cdef int init_locks(rota_handle *h, rota_error *error) noexcept nogil:
    cdef rota_control *control = h.control
    cdef int result = rota_lock_init(&control.lock)
    if result == 0:
        result = rota_lock_init(&control.sync_lock)
    if result == 0:
        result = rota_lock_init(&control.job_lock)
    if result == 0:
        result = rota_lock_init(&control.grow_lock)
    if result == 0:
        result = rota_lock_init(&control.tick_lock)
    if result < 0:
        return rota_fail(error, result, "control", 0, "robust locks are not to be had here")
    return ROTA_OK


cdef void write_identity(rota_handle *h) noexcept nogil:
    cdef rota_control *control = h.control
    control.state = ROTA_CONTROL_BUILDING
    control.failed = 0
    control.epoch = 0
    control.opened_lsn = 0
    control.version = ROTA_CONTROL_VERSION
    control.abi = abi_fingerprint()
    memcpy(control.uuid, h.uuid, 16)
    h.os.boot_id(h.os, control.boot_id)
    h.os.pid_namespace(h.os, &control.pid_namespace)
    h.os.time_namespace(h.os, &control.time_namespace)
    control.salt = h.salt
    control.salt_crc = h.salt_crc
    control.segment_size = h.segment_size
    control.capacity = h.capacity
    control.pool_offset = ROTA_CONTROL_FIXED_BYTES
    control.window_bytes = h.window_bytes
    control.segment_count_max = <uint32_t>(h.capacity // h.segment_size)
    control.sync_unit = h.manifest.sync_unit
    control.magic = ROTA_CONTROL_MAGIC


cdef int control_build(rota_handle *h, rota_error *error) noexcept nogil:
    """Write the fixed part anew, under the gate, while nobody is attached; the lanes are empty afterwards."""
    cdef bint keep, syncing = False
    cdef uint64_t kept
    cdef int status = open_file(h, b"control", &h.control_fd, error)
    if status == ROTA_OK:
        status = open_file(h, b"claims", &h.claims_fd, error)
    if status != ROTA_OK:
        return status
    keep = head_survives(h, &syncing)
    if keep and syncing:  # somebody died inside a sync: what it was told, nobody knows
        status = failed_create(h, 0, error)
        if status != ROTA_OK:
            return status
    h.window_bytes = control_window(h.capacity)
    kept = ROTA_PAGE_SIZE if keep else 0
    status = h.os.truncate(h.os, h.control_fd, kept)
    if status < 0:
        return rota_fail(error, status, "control", 0, "the file cannot be emptied")
    status = write_zeros(h, h.control_fd, "control", kept, ROTA_CONTROL_FIXED_BYTES + FIRST_EXTENT_BYTES - kept, error)
    if status == ROTA_OK:
        status = claims_prepare(h, keep, error)
    if status == ROTA_OK:
        status = map_files(h, error)
    if status == ROTA_OK:
        status = init_locks(h, error)
    if status != ROTA_OK:
        return status
    rota_failpoint(h.failpoints, ROTA_AT_CONTROL_CREATED)
    write_identity(h)
    h.control.pool_limit = FIRST_EXTENT_BYTES // ROTA_SMALL_PAGE
    h.control.pool_next = ROTA_PAGES_PER_LARGE  # page 0 stays empty
    h.control.claim_used = 0
    return ROTA_OK


cdef int check_identity(rota_handle *h, const rota_control *control, rota_error *error) noexcept nogil:
    cdef uint8_t boot[16]
    cdef uint64_t space = 0
    if control.magic != ROTA_CONTROL_MAGIC or control.version != ROTA_CONTROL_VERSION:
        return rota_fail(error, ROTA_DAMAGED_CONTROL, "control", 0, "the control file is not one; close all users and reopen")
    if control.abi != abi_fingerprint():
        return rota_fail(error, ROTA_FOREIGN_ABI, "control", 12, "a process with another C library has it open")
    if memcmp(control.uuid, h.uuid, 16) != 0 or control.capacity < h.segment_size \
            or control.segment_size != h.segment_size or control.salt != h.salt \
            or control.window_bytes != control_window(control.capacity):
        return rota_fail(error, ROTA_DAMAGED_CONTROL, "control", 16, "the control file belongs to another repository")
    if h.os.boot_id(h.os, boot) == 0 and memcmp(control.boot_id, boot, 16) != 0:
        return rota_fail(error, ROTA_DAMAGED_CONTROL, "control", 32, "the control file is of another boot")
    h.os.pid_namespace(h.os, &space)
    if control.pid_namespace != space:
        return rota_fail(error, ROTA_FOREIGN_ABI, "control", 48, "a process of another pid namespace has it open")
    h.os.time_namespace(h.os, &space)
    if control.time_namespace != space:
        return rota_fail(error, ROTA_FOREIGN_ABI, "control", 56, "a process of another time namespace has it open")
    return ROTA_OK


cdef int control_map(rota_handle *h, rota_error *error) noexcept nogil:
    """Map what another process built, after a look at a private copy of its head."""
    cdef uint8_t head[4096]
    cdef rota_facts facts
    cdef int status = open_file(h, b"control", &h.control_fd, error)
    if status == ROTA_OK:
        status = open_file(h, b"claims", &h.claims_fd, error)
    if status != ROTA_OK:
        return status
    if h.os.pread(h.os, h.control_fd, head, sizeof(head), 0) < 0:
        return rota_fail(error, ROTA_DAMAGED_CONTROL, "control", 0, "the control file is too short")
    status = check_identity(h, <rota_control *>head, error)
    if status != ROTA_OK:
        return status
    h.capacity = (<rota_control *>head).capacity
    h.window_bytes = control_window(h.capacity)
    h.claims_bytes = ROTA_CLAIM_COUNT * sizeof(rota_claim)
    if h.os.facts(h.os, h.claims_fd, &facts) < 0 or facts.size < h.claims_bytes:
        return rota_fail(error, ROTA_DAMAGED_CONTROL, "claims", 0, "the claims file is too short")
    if h.os.facts(h.os, h.control_fd, &facts) < 0 or facts.size < ROTA_CONTROL_FIXED_BYTES + FIRST_EXTENT_BYTES:
        return rota_fail(error, ROTA_DAMAGED_CONTROL, "control", 0, "the control file is too short")
    status = map_files(h, error)
    if status != ROTA_OK:
        return status
    if h.control.state != ROTA_CONTROL_READY:
        return rota_fail(error, ROTA_DAMAGED_CONTROL, "control", 0, "the control file was not finished")
    return ROTA_OK


cdef void control_unmap(rota_handle *h) noexcept nogil:
    if h.control != NULL:
        h.os.unmap(h.os, h.control, h.window_bytes)
        h.control = NULL
    if h.claims != NULL:
        h.os.unmap(h.os, h.claims, h.claims_bytes)
        h.claims = NULL


cdef int pool_extend(rota_handle *h, uint32_t large_pages, rota_error *error) noexcept nogil:
    """Write zeros behind the pool; the caller holds the grow lock, or is alone."""
    cdef uint64_t end = ROTA_CONTROL_FIXED_BYTES + <uint64_t>h.control.pool_limit * ROTA_SMALL_PAGE
    cdef uint64_t length = rota_round_up(<uint64_t>large_pages * ROTA_LARGE_PAGE, ROTA_EXTENT_BYTES)
    cdef int status
    if end + length > h.window_bytes:
        return rota_fail(error, ROTA_FULL, "control", end, "no more messages can be kept track of")
    status = write_zeros(h, h.control_fd, "control", end, length, error)
    if status == ROTA_OK:
        rota_failpoint(h.failpoints, ROTA_AT_CONTROL_GROWN)
    return status


cdef int pool_grow(rota_handle *h, uint32_t large_pages, rota_error *error) noexcept nogil:
    """The same for one who is alone: nobody else is attached."""
    cdef int status = pool_extend(h, large_pages, error)
    cdef uint64_t length = rota_round_up(<uint64_t>large_pages * ROTA_LARGE_PAGE, ROTA_EXTENT_BYTES)
    if status == ROTA_OK:
        h.control.pool_limit += <uint32_t>(length // ROTA_SMALL_PAGE)
    return status
