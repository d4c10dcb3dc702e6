# What `rota/automaton.h` and `rota/sip.h` declare, for Cython; the headers say what it means.
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from engine.platform cimport rota_platform

cdef extern from "rota/sip.h" nogil:
    enum:
        ROTA_KEY_SIGNED
        ROTA_KEY_UNSIGNED

    ctypedef struct rota_key_name:
        uint64_t low
        uint64_t high

    rota_key_name rota_name_number(const uint64_t *secret, uint64_t number, unsigned int kind) noexcept
    rota_key_name rota_name_bytes(const uint64_t *secret, const uint8_t *data, size_t length) noexcept

cdef extern from "rota/automaton.h" nogil:
    enum:
        ROTA_DECLINE
        ROTA_ACCEPT
        ROTA_BLOCK
        ROTA_TABLE_FULL
        ROTA_OWN_HEAD
        ROTA_TURN_NONE
        ROTA_TURN_ENDED
        ROTA_TURN_EVICTED
        ROTA_TURN_DIED

    ctypedef struct rota_automaton:
        rota_key_name name
        uint64_t word

    ctypedef struct rota_waiter:
        uint64_t owner
        uint32_t turn
        uint32_t sleeping
        uint32_t generation

    ctypedef struct rota_stripe:
        uint32_t count
        uint64_t accepted
        uint64_t blocked
        uint64_t declined
        uint64_t evicted
        uint64_t died

    ctypedef struct rota_automata:
        rota_stripe *stripes
        rota_automaton *slots
        rota_waiter *waiters
        uint32_t stripe_count
        uint32_t slots_each
        uint32_t waiters_each
        uint32_t slots_most
        uint64_t *secret
        const rota_platform *platform

    uint32_t rota_stripe_index(const rota_automata *a, rota_key_name name) noexcept
    void rota_automaton_prefetch(const rota_automata *a, rota_key_name name) noexcept
    rota_stripe *rota_stripe_enter(const rota_automata *a, uint32_t index) noexcept
    void rota_stripe_leave(rota_stripe *stripe) noexcept
    int rota_enqueue_locked(const rota_automata *a, uint32_t index, rota_stripe *stripe, rota_key_name name,
                            uint64_t owner, uint32_t *generation) noexcept
    bint rota_dequeue_locked(const rota_automata *a, uint32_t index, rota_stripe *stripe, rota_key_name name,
                             uint64_t owner, int64_t generation, rota_waiter **woken) noexcept
    int rota_enqueue(const rota_automata *a, rota_key_name name, uint64_t owner, uint32_t *generation) noexcept
    void rota_wake(const rota_automata *a, rota_waiter *woken) noexcept
    rota_waiter *rota_waiter_of(const rota_automata *a, rota_key_name name, uint64_t owner) noexcept
    uint32_t rota_wait_end(const rota_automata *a, rota_key_name name, uint64_t owner, bint evict,
                           uint32_t *generation) noexcept

cdef extern from "rota/automaton_many.h" nogil:
    enum:
        ROTA_CHUNK

    ctypedef struct rota_chunk:
        rota_key_name *names
        rota_key_name *sorted
        uint32_t *order
        rota_waiter **woken
        uint32_t count
        uint32_t woken_count

    void rota_chunk_name(rota_chunk *chunk, const uint64_t *secret, const uint8_t *keys, size_t size, bint with_sign,
                         bint keep_zeros) noexcept
    void rota_chunk_sort(rota_chunk *chunk) noexcept
    uint32_t rota_enqueue_chunk(const rota_automata *a, rota_chunk *chunk, uint64_t owner, uint8_t *answers) noexcept
    void rota_dequeue_chunk(const rota_automata *a, rota_chunk *chunk, uint64_t owner, uint8_t *answers) noexcept
