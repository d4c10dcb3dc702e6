"""Who calls: a number for each thread and each asyncio task, never used again.

What holds: while asyncio was not imported nobody can be in a task, and the question costs one look into sys.modules;
a callback of a loop that belongs to no task counts as its thread.
"""

import sys
import weakref

from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from libc.stdint cimport uint64_t

from engine.atomics cimport rota_fetch_add_u64

cdef extern from *:
    """
    static _Thread_local uint64_t rota_thread_owner;
    """
    uint64_t rota_thread_owner

cdef uint64_t next_owner = 1
cdef dict modules = sys.modules
cdef object running_loop = None
cdef object current_task = None
cdef object task_owners = weakref.WeakKeyDictionary()


cdef object task_now():
    """The task that runs in this thread, or None."""
    global running_loop, current_task
    if running_loop is None:
        if PyDict_GetItem(modules, "asyncio") is NULL:
            return None
        import asyncio
        current_task = asyncio.current_task
        running_loop = asyncio._get_running_loop
    loop = running_loop()
    return None if loop is None else current_task(loop)


cdef uint64_t owner_now() except 0:
    """The number of the task that calls, or else of the thread."""
    global rota_thread_owner
    task = task_now()
    if task is not None:
        owner = task_owners.get(task)
        if owner is None:
            owner = task_owners[task] = rota_fetch_add_u64(&next_owner, 1)
        return owner
    if rota_thread_owner == 0:
        rota_thread_owner = rota_fetch_add_u64(&next_owner, 1)
    return rota_thread_owner


cdef bint in_task() except -1:
    return task_now() is not None
