# What `rota/platform.h` declares, for Cython; the header says what it means.
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from engine.format cimport rota_commit_header, rota_frame

cdef extern from "rota/platform.h" nogil:
    enum:
        ROTA_HERE
        ROTA_DIRECT_ALIGNMENT
        ROTA_OPEN_READ
        ROTA_OPEN_WRITE
        ROTA_OPEN_CREATE
        ROTA_OPEN_EXCLUSIVE
        ROTA_OPEN_DIRECTORY
        ROTA_OPEN_DIRECT
        ROTA_OPEN_FOLLOW
        ROTA_FILESYSTEM_ALLOWED
        ROTA_FILESYSTEM_VOLATILE
        ROTA_FILESYSTEM_REFUSED
        ROTA_CHANGE_OPEN
        ROTA_CHANGE_CLOSE
        ROTA_CHANGE_TRUNCATE
        ROTA_CHANGE_ALLOCATE
        ROTA_CHANGE_RENAME
        ROTA_CHANGE_UNLINK
        ROTA_CHANGE_DIRECTORY
        ROTA_SYNC_BEGIN
        ROTA_SYNC_END
        ROTA_SYNC_FAILED
        ROTA_CALL_COUNT

    ctypedef struct rota_injection
    ctypedef int (*rota_visit)(void *context, const char *name) noexcept nogil

    ctypedef struct rota_facts:
        uint64_t size
        uint64_t device
        uint64_t inode
        uint64_t links
        uint32_t mode
        uint32_t owner
        bint regular
        bint directory

    ctypedef struct rota_piece:
        void *to
        const void *source "from"
        uint32_t length
        uint32_t sum

    ctypedef struct rota_platform:
        int (*open)(const rota_platform *platform, int directory, const char *name, int flags, int mode) noexcept nogil
        int (*close)(const rota_platform *platform, int fd) noexcept nogil
        int (*facts)(const rota_platform *platform, int fd, rota_facts *facts) noexcept nogil
        int (*make_directory)(const rota_platform *platform, int directory, const char *name, int mode) noexcept nogil
        int (*list_directory)(const rota_platform *platform, int fd, rota_visit visit, void *context) noexcept nogil
        int (*pread)(const rota_platform *platform, int fd, void *data, size_t length, uint64_t offset) noexcept nogil
        int (*pwrite)(const rota_platform *platform, int fd, const void *data, size_t length,
                      uint64_t offset) noexcept nogil
        int (*sync)(const rota_platform *platform, int fd) noexcept nogil
        int (*sync_metadata)(const rota_platform *platform, int fd) noexcept nogil
        int (*sync_directory)(const rota_platform *platform, int fd) noexcept nogil
        int (*allocate)(const rota_platform *platform, int fd, uint64_t offset, uint64_t length) noexcept nogil
        int (*zero)(const rota_platform *platform, int fd, uint64_t offset, uint64_t length) noexcept nogil
        int (*truncate)(const rota_platform *platform, int fd, uint64_t size) noexcept nogil
        int (*drop_cache)(const rota_platform *platform, int fd) noexcept nogil
        int (*map)(const rota_platform *platform, int fd, uint64_t length, bint writable, void **address) noexcept nogil
        int (*unmap)(const rota_platform *platform, void *address, uint64_t length) noexcept nogil
        int (*dont_fork)(const rota_platform *platform, void *address, uint64_t length) noexcept nogil
        int (*populate)(const rota_platform *platform, void *address, uint64_t length, bint writable) noexcept nogil
        int (*rename)(const rota_platform *platform, int directory, const char *old_name,
                      const char *new_name) noexcept nogil
        int (*rename_new)(const rota_platform *platform, int directory, const char *old_name,
                      const char *new_name) noexcept nogil
        int (*unlink)(const rota_platform *platform, int directory, const char *name) noexcept nogil
        int (*lock_range)(const rota_platform *platform, int fd, uint64_t offset, uint64_t length,
                          bint exclusive) noexcept nogil
        int (*unlock_range)(const rota_platform *platform, int fd, uint64_t offset, uint64_t length) noexcept nogil
        int (*test_range)(const rota_platform *platform, int fd, uint64_t offset, uint64_t length) noexcept nogil
        int (*futex_wait)(const rota_platform *platform, uint32_t *word, uint32_t expected,
                          int64_t timeout_ns) noexcept nogil
        int (*futex_wake)(const rota_platform *platform, uint32_t *word, int count) noexcept nogil
        int (*sleep)(const rota_platform *platform, uint64_t duration_ns) noexcept nogil
        int (*yield_processor)(const rota_platform *platform) noexcept nogil
        uint64_t (*clock_wall_ns)(const rota_platform *platform) noexcept nogil
        uint64_t (*clock_wall_coarse_ns)(const rota_platform *platform) noexcept nogil
        uint64_t (*clock_boot_ns)(const rota_platform *platform) noexcept nogil
        uint64_t (*clock_boot_coarse_ns)(const rota_platform *platform) noexcept nogil
        int (*boot_id)(const rota_platform *platform, uint8_t *id) noexcept nogil
        int (*pid_namespace)(const rota_platform *platform, uint64_t *inode) noexcept nogil
        int (*time_namespace)(const rota_platform *platform, uint64_t *inode) noexcept nogil
        int (*process_id)(const rota_platform *platform) noexcept nogil
        int (*process_start)(const rota_platform *platform, int process, uint64_t *ticks) noexcept nogil
        int (*random)(const rota_platform *platform, void *data, size_t length) noexcept nogil
        int (*filesystem_kind)(const rota_platform *platform, int fd, char *name) noexcept nogil
        void *(*memory_allocate)(const rota_platform *platform, size_t alignment, size_t size) noexcept nogil
        void (*memory_free)(const rota_platform *platform, void *memory) noexcept nogil
        int (*guard_install)(const rota_platform *platform) noexcept nogil
        int (*copy_guarded)(const rota_platform *platform, void *destination, const void *source,
                            size_t length) noexcept nogil
        int (*crc_guarded)(const rota_platform *platform, uint32_t seed, const void *source, size_t length,
                           uint32_t *crc) noexcept nogil
        int (*gather_guarded)(const rota_platform *platform, const void *mapping, size_t span, rota_piece *pieces,
                              uint32_t count, bint sums) noexcept nogil
        int (*frame_guarded)(const rota_platform *platform, const uint8_t *segment, uint64_t offset, rota_frame *frame,
                             rota_commit_header *header) noexcept nogil
        int (*copy_crc_guarded)(const rota_platform *platform, uint32_t seed, void *destination,
                                const void *source, size_t length, uint32_t *crc) noexcept nogil
        void *record_context
        void (*record_store)(void *context, int file, uint64_t offset, const void *data, uint64_t length) noexcept nogil
        void (*record_sync)(void *context, int file, int stage) noexcept nogil
        void (*record_change)(void *context, int change, int file, const char *name, const char *other,
                              uint64_t value) noexcept nogil
        rota_injection *injection
        void *system

    void rota_record_store(const rota_platform *platform, int file, uint64_t offset, const void *data,
                           uint64_t length) noexcept
    const char *rota_call_name(int call) noexcept
    int rota_call_by_name(const char *name) noexcept
