"""The files of a repository as a handle opens and lets them go, and the way through the gate with signals answered.

What holds: what was opened is let go again on every failure; the descriptors of an inherited handle are left alone, as
their locks are the parent's.
"""

import os

from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from engine.atomics cimport *
from engine.format cimport *
from engine.handle cimport *
from engine.platform cimport *
from engine.status cimport *

from rota._core.attach cimport GATE_A_SLICE, GATE_CALLS, GATE_GIVE_UP, GATE_PATIENT, attach, detach, gate_refused

from rota import errors

cdef enum:
    ENOENT = 2
    ENOTDIR = 20

cdef extern from "rota/fork.h" nogil:
    int rota_fork_install() noexcept
    uint32_t *rota_fork_generation() noexcept
    int rota_fork_remember(int fd) noexcept
    void rota_fork_forget(int fd) noexcept

rota_fork_install()


cdef const uint32_t *fork_generation() noexcept nogil:
    """The word that a child raises before anything else runs in it."""
    return rota_fork_generation()


cdef bint has_manifest(str path) except -1:
    return os.path.exists(os.path.join(path, "manifest"))


cdef int make_directory(str path) except -1:
    """With its parents.  Raises NotARepository where another file has the name, else what the system says."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise errors.NotARepository("a file that is no directory has this name, or that of a parent: choose another",
                                    path=path) from error
    except OSError as error:
        raise errors.SystemCallError("the directory cannot be made", path=path, errno=error.errno) from error
    return 0


cdef int open_files(rota_handle *h, str path, dict options) except -1:
    """The directory and the lock file, after a look at the file system."""
    cdef char name[32]
    cdef int verdict
    cdef bytes encoded = os.fsencode(path)
    if len(encoded) >= sizeof(h.path):
        raise ValueError("the path is too long")
    memcpy(h.path, <const char *>encoded, len(encoded))
    if options["create"]:
        make_directory(path)
    verdict = h.os.open(h.os, ROTA_HERE, h.path, ROTA_OPEN_READ | ROTA_OPEN_DIRECTORY | ROTA_OPEN_FOLLOW, 0)
    if verdict == -ENOENT:
        raise errors.NotARepository("there is no such directory; create=True makes one", path=path)
    if verdict == -ENOTDIR:
        raise errors.NotARepository("this is not a directory: name the one that is or will be the repository",
                                    path=path)
    if verdict < 0:
        raise errors.SystemCallError("the directory cannot be opened", path=path, errno=-verdict)
    h.directory_fd = verdict
    verdict = h.os.filesystem_kind(h.os, h.directory_fd, name)
    if verdict < 0 or (verdict == ROTA_FILESYSTEM_REFUSED and not options["insist"]):
        close_files(h)
        raise errors.FileSystemRefused(
            f"rota does not trust the file system {name.decode()!r} with a repository: use ext4 or xfs on this "
            "machine, or insist=True", path=path)
    h.is_memory = verdict == ROTA_FILESYSTEM_VOLATILE
    if not options["create"] and not has_manifest(path):  # nothing is left in a directory that is another's
        close_files(h)
        raise errors.NotARepository("this directory holds no repository; create=True makes one", path=path)
    h.lock_fd = h.os.open(h.os, h.directory_fd, b"lock",
                          ROTA_OPEN_READ | ROTA_OPEN_WRITE | ROTA_OPEN_CREATE, 0o600)
    if h.lock_fd < 0:
        verdict = h.lock_fd
        close_files(h)
        raise errors.SystemCallError("the lock file cannot be opened", path=path, file="lock", errno=-verdict)
    if rota_fork_remember(h.lock_fd) < 0:
        close_files(h)
        raise errors.InUse("this process has 1024 repositories open", path=path)


cdef int close_files(rota_handle *h) except -1:
    """Let the descriptors go, the inherited lock file aside."""
    if h.fork_generation == rota_fork_generation()[0] and h.lock_fd >= 0:
        rota_fork_forget(h.lock_fd)
        h.os.close(h.os, h.lock_fd)
    h.lock_fd = -1
    for fd in (h.directory_fd, h.control_fd, h.claims_fd, h.manifest_fd):
        if fd >= 0:
            h.os.close(h.os, fd)
    h.directory_fd = h.control_fd = h.claims_fd = h.manifest_fd = -1


cdef int fill_manifest(rota_handle *h, dict options) except -1:
    """What a new repository is."""
    cdef rota_manifest_sector *manifest = &h.manifest
    cdef bytes uuid = os.urandom(16)
    memcpy(manifest.uuid, <const char *>uuid, 16)
    h.os.random(h.os, &manifest.salt, sizeof(manifest.salt))
    manifest.segment_size = options["segment_size"]
    manifest.capacity = options["new_capacity"]
    manifest.sync_unit = options["sync_unit"]
    manifest.compression = 1 if options["compression"] == "lz4" else 0
    manifest.next_id_floor = 1
    manifest.created_at_ns = h.os.clock_wall_ns(h.os)


cdef int attach_by_slices(rota_handle *h, bint create, rota_error *error) except 1:
    """Behind the gate, with a look at signals while others are there."""
    cdef int status = ROTA_TIMEOUT, slices = 0
    while status == ROTA_TIMEOUT:
        with nogil:
            status = attach(h, create, error)
        slices += 1
        if status == ROTA_TIMEOUT and slices >= GATE_CALLS:
            return gate_refused(error)
        try:
            PyErr_CheckSignals()
        except BaseException:
            if status == ROTA_OK:
                detach(h, False, GATE_PATIENT, NULL)
            close_files(h)
            raise
    return status


cdef int detach_by_slices(rota_handle *h, bint orderly, rota_error *error) except 1:
    """After the threads inside, and those who open or close; signals are looked at between."""
    cdef int status = ROTA_TIMEOUT, slices = 0, waits
    while rota_load_acquire_u32(&h.calls):
        with nogil:
            h.os.sleep(h.os, 1000000)
        PyErr_CheckSignals()
    while status == ROTA_TIMEOUT:
        waits = GATE_A_SLICE if slices < GATE_CALLS else GATE_GIVE_UP
        with nogil:
            status = detach(h, orderly, waits, error)
        slices += 1
        if status == ROTA_TIMEOUT:
            PyErr_CheckSignals()
    return status
