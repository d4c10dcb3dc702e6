"""The queues of a repository: by name, by number, made and removed.

What holds: a queue is made by a commit that is durable when this returns; its number is the lowest free one.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memset

from engine.control cimport *
from engine.format cimport *
from engine.status cimport *

from rota._core.draft cimport *
from rota._core.lane cimport queue_at
from rota._core.message cimport submit_settle
from rota._core.queue cimport Queue, make_queue
from rota._core.store cimport Store

from rota import errors
from rota._core.codec import encode_indexes


def queue_named(Store store, repository, str name):
    """The queue of that name, or None."""
    cdef uint32_t number
    cdef rota_queue *queue
    cdef bytes wanted = name.encode("utf-8", "surrogateescape")
    store.check()
    for number in range(store.h.control.queue_count):
        queue = queue_at(store.h, number)
        if queue != NULL and (<char *>queue.name)[:queue.options.name_length] == wanted:
            return make_queue(store, repository, number, name)
    return None


def queue_numbered(Store store, repository, uint32_t number):
    """The queue of that number, or None."""
    store.check()
    cdef rota_queue *queue = queue_at(store.h, number)
    if queue == NULL:
        return None
    name = (<bytes>(<char *>queue.name)[:queue.options.name_length]).decode("utf-8", "surrogateescape")
    return make_queue(store, repository, number, name)


def queue_names(Store store):
    """Names of all queues, in the order of their numbers."""
    cdef uint32_t number
    cdef rota_queue *queue
    store.check()
    names = []
    for number in range(store.h.control.queue_count):
        queue = queue_at(store.h, number)
        if queue != NULL:
            names.append((<bytes>(<char *>queue.name)[:queue.options.name_length]).decode("utf-8", "surrogateescape"))
    return names


def write_queue(Store store, uint32_t action, list entries):
    """Log the creation or change of queues in one commit; entries are (number, name, options dict).

    False when a number or a name was taken meanwhile, and nothing was written.  Raises NotFound.
    """
    cdef Draft draft
    cdef rota_queue_options options
    cdef bytes name
    cdef bytearray extra
    store.check_writable()
    draft_begin(&draft, store.h)
    try:
        for number, text, chosen in entries:
            name = text.encode("utf-8", "surrogateescape")
            if not 0 < len(name) <= ROTA_NAME_LENGTH_MAX:
                raise ValueError(f"the name of a queue has 1 to {ROTA_NAME_LENGTH_MAX} bytes, not {len(name)}")
            memset(&options, 0, sizeof(options))
            options.name_length = <uint16_t>len(name)
            options.max_messages = chosen["max_messages"] or 0
            options.max_attempts = chosen["max_attempts"] or 0
            options.lease_ns = <uint64_t>(chosen["lease"] * 1e9)
            options.error_queue = chosen["error_queue_number"]
            options.order = {"skip": 0, "group": 1, "strict": 2, "highest": 3}[chosen["order"]]
            options.is_volatile = chosen["volatile"]
            options.is_error_queue = chosen["is_error_queue"]
            indexes = encode_indexes(chosen["indexes"], chosen["by"], chosen["age_rate"],
                                     chosen["dedup_window"], chosen["dedup_count"])
            options.index_bytes = <uint16_t>len(indexes)
            extra = bytearray((<char *>&options)[:sizeof(options)]) + name + indexes
            draft_op(&draft, ROTA_OP_QUEUE, <uint8_t>action, number, 0, 0, 0, <const char *>extra, len(extra))
        return not submit_settle(store, &draft, "sync")
    finally:
        draft_end(&draft)


def free_number(Store store, exclude=()):
    """The lowest number that no queue has."""
    cdef uint32_t number
    for number in range(ROTA_QUEUE_COUNT_MAX):
        if queue_at(store.h, number) == NULL and number not in exclude:
            return number
    raise errors.Full(f"a repository has at most {ROTA_QUEUE_COUNT_MAX} queues", path=store.path)


def destroy_queue(Store store, Queue queue):
    """Log the end of a queue.  Raises InUse when it holds messages."""
    queue.change(ROTA_QUEUE_DESTROY)

