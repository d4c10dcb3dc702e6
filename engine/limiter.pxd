# What `rota/limiter.h` declares, for Cython; the header says what it means.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from engine.automaton cimport rota_key_name
from engine.control cimport pthread_mutex_t
from engine.failpoint cimport rota_failpoints

cdef extern from "rota/limiter.h" nogil:
    enum:
        ROTA_LIMIT_SET
        ROTA_LIMIT_SLOTS_MAX
        ROTA_LIMIT_TICK_SHIFT
        ROTA_LIMIT_TAKEN
        ROTA_LIMIT_LATER
        ROTA_LIMIT_NO_SLOT
        ROTA_LIMIT_NO_ROOM
    uint64_t ROTA_LIMIT_MAGIC
    uint64_t ROTA_LIMIT_BUSY

    ctypedef struct rota_limit_slot:
        rota_key_name name
        uint64_t due

    ctypedef struct rota_limit_file:
        uint64_t magic
        uint32_t slot_count
        uint32_t name_length
        uint8_t boot_id[16]
        uint64_t noted_boot_ns
        uint64_t noted_wall_ns
        uint64_t secret[2]
        uint64_t interval
        uint64_t burst
        uint64_t due
        pthread_mutex_t lock
        uint32_t filling
        uint8_t name[256]
        rota_limit_slot *slots

    ctypedef struct rota_limit_turn:
        uint64_t now
        uint64_t charge
        uint64_t burst
        uint64_t patience
        uint64_t *due
        uint64_t after
        uint64_t begins

    double rota_limit_double(uint64_t bits) noexcept
    uint64_t rota_limit_bits(double value) noexcept
    bint rota_limit_ask(const rota_limit_file *file, uint64_t now_ns, double cost, double patience_ns,
                        rota_limit_turn *turn) noexcept
    int rota_limit_take(uint64_t *due, rota_limit_turn *turn) noexcept
    bint rota_limit_return(const rota_limit_turn *turn) noexcept
    rota_limit_slot *rota_limit_set(rota_limit_file *file, uint32_t slot_count, rota_key_name name) noexcept
    rota_limit_slot *rota_limit_find(rota_limit_slot *slots, rota_key_name name, uint64_t *seen) noexcept
    int rota_limit_take_key(rota_limit_file *file, uint32_t slot_count, rota_key_name name,
                            rota_limit_turn *turn) noexcept
    int rota_limit_enter(rota_limit_file *file, uint32_t slot_count, rota_key_name name, rota_limit_turn *turn,
                         rota_failpoints *failpoints) noexcept
    void rota_limit_repair(rota_limit_file *file, uint32_t slot_count) noexcept
    void rota_limit_reboot(rota_limit_file *file, uint32_t slot_count, uint64_t boot_ns, uint64_t wall_ns) noexcept
