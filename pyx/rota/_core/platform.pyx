"""The owner of the platform table and of the failpoints, and the switches by which tests use them.

What holds:
 1. This is the only module that includes platform_linux.h, inject.h and failpoint_parse.h, so what changes in them
    (the SIGBUS guard, injections, failpoints, the recorder) exists once in a process.
 2. The table is complete when the import of this module ends and stays where it is; only inject(), injections_clear(),
    call_counts(), shift_clock() and record() change it.
 3. The environment variable ROTA_FAILPOINTS is read once, at import; a mistake in it fails the import.
"""
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport getenv
from libc.string cimport memset

from engine.crc32c cimport rota_crc32c, rota_crc32c_is_hardware, rota_crc32c_portable
from engine.failpoint cimport (
    ROTA_FAILPOINT_COUNT,
    ROTA_FAILPOINT_ERROR,
    ROTA_FAILPOINT_OFF,
    rota_failpoint_arm,
    rota_failpoint_name,
    rota_failpoints,
    rota_failpoints_release,
)
from engine.platform cimport (
    ROTA_CALL_COUNT,
    ROTA_CHANGE_ALLOCATE,
    ROTA_CHANGE_CLOSE,
    ROTA_CHANGE_DIRECTORY,
    ROTA_CHANGE_OPEN,
    ROTA_CHANGE_RENAME,
    ROTA_CHANGE_TRUNCATE,
    ROTA_CHANGE_UNLINK,
    ROTA_FILESYSTEM_ALLOWED,
    ROTA_FILESYSTEM_REFUSED,
    ROTA_FILESYSTEM_VOLATILE,
    ROTA_HERE,
    ROTA_OPEN_FOLLOW,
    ROTA_SYNC_BEGIN,
    ROTA_SYNC_END,
    rota_call_by_name,
    rota_call_name,
    rota_platform,
)
from engine.status cimport ROTA_OK, rota_error

import os


cdef extern from "rota/platform_linux.h" nogil:
    rota_platform rota_platform_linux() noexcept

cdef extern from "rota/inject.h" nogil:
    uint64_t ROTA_INJECT_EVERY

    ctypedef struct rota_injection_point:
        uint64_t calls
        uint64_t fired

    ctypedef struct rota_injection_layer "rota_injection":
        uint64_t wall_shift_ns
        uint64_t boot_shift_ns
        rota_injection_point *points

    void rota_injection_install(rota_platform *platform, rota_injection_layer *injection) noexcept
    void rota_injection_arm(rota_injection_layer *injection, int call, uint64_t nth, int os_errno,
                            uint64_t delay_ns) noexcept
    void rota_injection_clear(rota_injection_layer *injection) noexcept
    void rota_injection_shift(rota_injection_layer *injection, uint64_t wall_ns, uint64_t boot_ns) noexcept

cdef extern from "rota/failpoint_parse.h" nogil:
    bint rota_failpoint_argument(const char *text, int action, int *argument) noexcept
    int rota_failpoint_action_by_name(const char *name) noexcept
    int rota_failpoints_arm_named(rota_failpoints *failpoints, const char *pattern, int action, uint64_t nth,
                                  int argument) noexcept
    int rota_failpoints_parse(rota_failpoints *failpoints, const char *specification, rota_error *error) noexcept


cdef rota_platform _platform = rota_platform_linux()
cdef rota_failpoints _failpoints
cdef rota_injection_layer _injection
cdef object _recorder = None

memset(&_failpoints, 0, sizeof(_failpoints))
memset(&_injection, 0, sizeof(_injection))
_failpoints.platform = &_platform


cdef const rota_platform *table() noexcept nogil:
    return &_platform


cdef rota_failpoints *failpoints() noexcept nogil:
    return &_failpoints


# --- failpoints -------------------------------------------------------------------------------------------------


def arm_from(str specification) -> None:
    """Arm what a text like ``append.copied=kill@3;sync.before=error:EIO`` says.

    Each entry is ``point=action[:argument][@nth]``; the point may be a pattern such as ``segment.*``.
    """
    cdef rota_error error
    cdef bytes text = specification.encode()
    if rota_failpoints_parse(&_failpoints, text, &error) != ROTA_OK:
        raise ValueError((<bytes>error.detail).decode("utf-8", "replace"))


def arm(str name, str action, uint64_t nth=1, argument=0) -> None:
    """Let the nth hit of a failpoint, counted from now, act; nth 0 means every hit.

    Actions: ``off``, ``count``, ``kill``, ``stop``, ``exit`` (argument: code), ``pause`` (until disarmed or released)
    and ``error``, where the argument is an errno, its name, or the name of a status; EIO when left out. The name may be a
    pattern such as ``segment.*``.
    """
    cdef int number = rota_failpoint_action_by_name(action.encode())
    cdef int value = 0
    if number < 0:
        raise ValueError(f"unknown failpoint action: {action!r}")
    if number == ROTA_FAILPOINT_ERROR and argument == 0:
        argument = "EIO"
    if not rota_failpoint_argument(str(argument).encode(), number, &value):
        raise ValueError(f"unknown failpoint argument: {argument!r}")
    if rota_failpoints_arm_named(&_failpoints, name.encode(), number, nth, value) == 0:
        raise ValueError(f"unknown failpoint: {name!r}")


def disarm(name: str | None = None) -> None:
    """Switch one failpoint off, or all of them; threads that are paused there go on."""
    arm("*" if name is None else name, "off")


def release() -> None:
    """Let the threads that are paused at failpoints go on; the failpoints stay armed."""
    rota_failpoints_release(&_failpoints)


def paused() -> int:
    """Tell how many threads are paused at failpoints."""
    return _failpoints.paused


def hits() -> dict[str, int]:
    """Tell how often each armed failpoint was reached since it was armed."""
    cdef int place
    return {
        rota_failpoint_name(place).decode(): _failpoints.points[place].hits
        for place in range(ROTA_FAILPOINT_COUNT)
        if _failpoints.points[place].action != ROTA_FAILPOINT_OFF
    }


def failpoint_names() -> tuple[str, ...]:
    """List every failpoint of the engine."""
    cdef int place
    return tuple([rota_failpoint_name(place).decode() for place in range(ROTA_FAILPOINT_COUNT)])


# --- injection --------------------------------------------------------------------------------------------------


cdef int _call_number(str call) except -1:
    cdef int number = rota_call_by_name(call.encode())
    if number < 0:
        raise ValueError(f"unknown platform call: {call!r}")
    return number


def inject(str call, uint64_t nth=1, int errno=0, uint64_t delay_ns=0) -> None:
    """Let the nth call from now on of an entry of the platform table fail, be late, or both; nth 0 means every call.

    A failing call does not reach the system. Guarded copies fail as on a bus error, allocations as without memory.
    """
    cdef int number = _call_number(call)
    if errno < 0:
        raise ValueError("errno must not be negative")
    rota_injection_install(&_platform, &_injection)
    rota_injection_arm(&_injection, number, nth if nth > 0 else ROTA_INJECT_EVERY, errno, delay_ns)


def injections_clear() -> None:
    """Disarm all injections, set the counts to zero and the clocks right."""
    rota_injection_clear(&_injection)


def injections_fired() -> dict[str, int]:
    """Tell how often an injection acted, by call; calls where none did are left out."""
    cdef int call
    return {
        rota_call_name(call).decode(): _injection.points[call].fired
        for call in range(ROTA_CALL_COUNT)
        if _injection.points[call].fired > 0
    }


def call_counts() -> dict[str, int]:
    """Tell how often each entry of the platform table was called since the counts were last cleared.

    Counting begins with the first use of this function, of inject() or of shift_clock().
    """
    cdef int call
    rota_injection_install(&_platform, &_injection)
    return {rota_call_name(call).decode(): _injection.points[call].calls for call in range(ROTA_CALL_COUNT)}


def shift_clock(long long wall_ns=0, long long boot_ns=0) -> None:
    """Set the clocks that the engine sees apart from the system's by so much; waiting takes as long as ever."""
    rota_injection_install(&_platform, &_injection)
    rota_injection_shift(&_injection, <uint64_t>wall_ns, <uint64_t>boot_ns)


def clocks() -> tuple[int, int]:
    """Read the wall clock and the boot clock as the engine sees them, in nanoseconds."""
    return _platform.clock_wall_ns(&_platform), _platform.clock_boot_ns(&_platform)


# --- the recorder -----------------------------------------------------------------------------------------------


cdef dict _CHANGES = {
    ROTA_CHANGE_OPEN: "open",
    ROTA_CHANGE_CLOSE: "close",
    ROTA_CHANGE_TRUNCATE: "truncate",
    ROTA_CHANGE_ALLOCATE: "allocate",
    ROTA_CHANGE_RENAME: "rename",
    ROTA_CHANGE_UNLINK: "unlink",
    ROTA_CHANGE_DIRECTORY: "directory",
}


cdef void _record_store(void *context, int file, uint64_t offset, const void *data, uint64_t length) noexcept with gil:
    callback = _recorder
    if callback is None:
        return
    if data == NULL:
        callback("zero", file, offset, length)
    else:
        callback("store", file, offset, (<const char *>data)[:length])


cdef void _record_sync(void *context, int file, int stage) noexcept with gil:
    callback = _recorder
    if callback is not None:
        event = "sync" if stage == ROTA_SYNC_BEGIN else "synced" if stage == ROTA_SYNC_END else "sync-failed"
        callback(event, file)


cdef void _record_change(void *context, int change, int file, const char *name, const char *other,
                         uint64_t value) noexcept with gil:
    callback = _recorder
    if callback is None:
        return
    names = [os.fsdecode(<bytes>text) for text in ((name if name != NULL else b""), (other if other != NULL else b""))]
    if change == ROTA_CHANGE_RENAME:
        callback("rename", file, names[0], names[1])
    elif name != NULL:
        callback(_CHANGES[change], file, names[0], value)
    else:
        callback(_CHANGES[change], file, value)


def record(callback) -> None:
    """Tell a callable of everything that could reach the disk, in the order of the program; None ends it.

    It is called with an event and a descriptor, then with: ``store`` offset, bytes; ``zero`` offset, length; ``sync``,
    ``synced`` and ``sync-failed`` nothing; ``open`` name, flags; ``close`` 0; ``truncate`` and ``allocate`` size;
    ``rename`` old and new name; ``unlink`` and ``directory`` name, 0. What was stored before ``sync`` is durable after ``synced``. It
    runs inside the engine, perhaps under its lock: it must not call the engine and should not raise.
    """
    global _recorder
    _recorder = callback
    if callback is None:
        _platform.record_store = NULL
        _platform.record_sync = NULL
        _platform.record_change = NULL
    else:
        _platform.record_store = _record_store
        _platform.record_sync = _record_sync
        _platform.record_change = _record_change


# --- questions --------------------------------------------------------------------------------------------------


def filesystem(path) -> tuple[str, str]:
    """Name the file system of a path and tell the verdict on it: ``allowed``, ``volatile`` or ``refused``."""
    cdef char name[32]
    cdef int kind
    cdef bytes text = os.fsencode(path)
    cdef int fd = _platform.open(&_platform, ROTA_HERE, text, ROTA_OPEN_FOLLOW, 0)
    if fd < 0:
        raise OSError(-fd, os.strerror(-fd), path)
    kind = _platform.filesystem_kind(&_platform, fd, name)
    _platform.close(&_platform, fd)
    if kind < 0:
        raise OSError(-kind, os.strerror(-kind), path)
    verdicts = {
        ROTA_FILESYSTEM_ALLOWED: "allowed",
        ROTA_FILESYSTEM_VOLATILE: "volatile",
        ROTA_FILESYSTEM_REFUSED: "refused",
    }
    return (<bytes>name).decode(), verdicts[kind]


cdef uint32_t _sum(data, uint32_t seed, bint portable) except? 0:
    cdef Py_buffer view
    cdef uint32_t result
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    if portable:
        result = rota_crc32c_portable(seed, view.buf, <size_t>view.len)
    else:
        result = rota_crc32c(seed, view.buf, <size_t>view.len)
    PyBuffer_Release(&view)
    return result


def crc32c(data, uint32_t seed=0) -> int:
    """Compute the CRC32C of bytes, going on from the sum of what stands before them."""
    return _sum(data, seed, False)


def crc32c_portable(data, uint32_t seed=0) -> int:
    """Compute the same without the machine's instruction for it."""
    return _sum(data, seed, True)


def crc32c_is_hardware() -> bool:
    """Tell whether crc32c() uses the machine's instruction."""
    return rota_crc32c_is_hardware()


if getenv("ROTA_FAILPOINTS") != NULL:
    try:
        arm_from((<bytes>getenv("ROTA_FAILPOINTS")).decode("utf-8", "replace"))
    except ValueError as problem:
        raise ImportError(f"ROTA_FAILPOINTS: {problem}") from None
