# What `rota/pool.h`, `rota/heap.h` and `rota/table.h` declare, for Cython; the headers say what it means.
from libc.stdint cimport uint32_t, uint64_t
from engine.control cimport (
    rota_heap,
    rota_heap_entry,
    rota_page,
    rota_record,
    rota_slot,
    rota_slot_ref,
    rota_table,
)
from engine.handle cimport rota_handle

cdef extern from "rota/pool.h" nogil:
    void rota_save(const rota_handle *h, const void *address) noexcept
    void rota_save_once(const rota_handle *h, const void *address) noexcept
    void rota_settle_undo(const rota_handle *h) noexcept
    void rota_restore_undo(const rota_handle *h) noexcept
    rota_page *rota_page_at(const rota_handle *h, uint32_t number) noexcept
    uint32_t rota_page_number(const rota_handle *h, const void *page) noexcept
    uint32_t rota_page_slots(const rota_page *page) noexcept
    rota_slot *rota_page_slot(rota_page *page, uint32_t index) noexcept
    rota_slot_ref rota_ref(uint32_t page, uint32_t index) noexcept
    uint32_t rota_ref_page(rota_slot_ref ref) noexcept
    uint32_t rota_ref_index(rota_slot_ref ref) noexcept
    rota_slot *rota_slot_at(const rota_handle *h, rota_slot_ref ref) noexcept
    uint32_t rota_pool_room(const rota_handle *h) noexcept
    uint32_t rota_page_take_large(const rota_handle *h, unsigned kind) noexcept
    uint32_t rota_page_take_small(const rota_handle *h, unsigned kind) noexcept
    void rota_page_give(const rota_handle *h, uint32_t number) noexcept

cdef extern from "rota/heap.h" nogil:
    int rota_heap_push(const rota_handle *h, rota_heap *heap, uint64_t key, uint64_t id, rota_slot_ref slot) noexcept
    const rota_heap_entry *rota_heap_top(const rota_handle *h, const rota_heap *heap) noexcept
    const rota_heap_entry *rota_heap_at(const rota_handle *h, const rota_heap *heap, uint32_t index) noexcept
    int rota_heap_reserve(const rota_handle *h, rota_heap *heap, uint32_t more) noexcept
    void rota_heap_pop(const rota_handle *h, rota_heap *heap) noexcept

cdef extern from "rota/table.h" nogil:
    enum:
        ROTA_TABLE_DEPTH_MAX
    const uint32_t ROTA_TABLE_RECORDS_MAX
    rota_record *rota_table_find(const rota_handle *h, const rota_table *table, uint64_t key) noexcept
    rota_record *rota_table_put(const rota_handle *h, rota_table *table, uint64_t key) noexcept
    uint32_t *rota_table_buckets(rota_page *root) noexcept
    rota_record *rota_bucket_records(rota_page *bucket) noexcept
    void rota_table_remove(const rota_handle *h, rota_table *table, uint64_t key) noexcept
