/*
 * A binary heap in the control file: the returned messages of a lane by their place in the order, the delayed ones of
 * a queue by their due time.
 *
 * What holds:
 *  1. Entries lie in large pages, named by a root page; entry i is in leaf i / ROTA_HEAP_LEAF_ENTRIES.
 *  2. An entry is a hint: whoever takes it looks at the slot (same id, the state that the heap is for).  Entries of
 *     messages that ended otherwise are dropped when they reach the top; a message may have several.
 *  3. Each change saves its lines first (pool.h), so a death inside leaves a heap.
 */
#ifndef ROTA_HEAP_H
#define ROTA_HEAP_H

#include "rota/pool.h"

#define ROTA_HEAP_SMALL_LEAVES ((ROTA_SMALL_PAGE - 64u) / 4u)
#define ROTA_HEAP_LARGE_LEAVES ((ROTA_LARGE_PAGE - 64u) / 4u)
#define ROTA_HEAP_SIZE_MAX (ROTA_HEAP_LARGE_LEAVES * ROTA_HEAP_LEAF_ENTRIES)

static inline uint32_t *rota_heap_leaves(rota_page *root) { return (uint32_t *)(root + 1); }

static inline rota_heap_entry *rota_heap_at(const rota_handle *h, const rota_heap *heap, uint32_t index) {
    rota_page *root = rota_page_at(h, heap->root);
    uint32_t leaf = index / ROTA_HEAP_LEAF_ENTRIES;
    if (ROTA_UNLIKELY(leaf >= (root->is_large ? ROTA_HEAP_LARGE_LEAVES : ROTA_HEAP_SMALL_LEAVES)))
        leaf = 0;
    rota_page *page = rota_page_at(h, rota_heap_leaves(root)[leaf]);
    if (ROTA_UNLIKELY(!page->is_large)) /* a hostile number: stay inside */
        index = 0;
    return (rota_heap_entry *)(page + 1) + index % ROTA_HEAP_LEAF_ENTRIES;
}

static inline int rota_heap_before(const rota_heap_entry *x, const rota_heap_entry *y) {
    return x->key != y->key ? x->key < y->key : x->id < y->id;
}

static inline void rota_heap_set(const rota_handle *h, rota_heap *heap, uint32_t index, const rota_heap_entry *value) {
    rota_heap_entry *entry = rota_heap_at(h, heap, index);
    rota_save_once(h, entry);
    *entry = *value;
}

/* Make the heap hold one more entry.  0, or -1 when it is full. */
static inline int rota_heap_extend(const rota_handle *h, rota_heap *heap) {
    if (!heap->root) {
        heap->root = rota_page_take_small(h, ROTA_PAGE_HEAP_ROOT);
        if (!heap->root)
            return -1;
        memset(rota_page_at(h, heap->root) + 1, 0, ROTA_SMALL_PAGE - 64);
    }
    rota_page *root = rota_page_at(h, heap->root);
    uint32_t leaf = heap->size / ROTA_HEAP_LEAF_ENTRIES;
    if (!root->is_large && leaf >= ROTA_HEAP_SMALL_LEAVES) {
        uint32_t number = rota_page_take_large(h, ROTA_PAGE_HEAP_ROOT);
        if (!number)
            return -1;
        rota_page *larger = rota_page_at(h, number);
        memset(larger + 1, 0, ROTA_LARGE_PAGE - 64);
        memcpy(larger + 1, root + 1, ROTA_SMALL_PAGE - 64);
        rota_page_give(h, heap->root);
        heap->root = number;
        root = larger;
    }
    if (leaf >= (root->is_large ? ROTA_HEAP_LARGE_LEAVES : ROTA_HEAP_SMALL_LEAVES))
        return -1;
    if (!rota_heap_leaves(root)[leaf]) {
        uint32_t number = rota_page_take_large(h, ROTA_PAGE_HEAP_LEAF);
        if (!number)
            return -1;
        rota_save(h, &rota_heap_leaves(root)[leaf]);
        rota_heap_leaves(root)[leaf] = number;
    }
    return 0;
}

/* Room for so many more entries, so that pushing them needs no page.  The caller has saved the line of `heap`. */
static inline int rota_heap_reserve(const rota_handle *h, rota_heap *heap, uint32_t more) {
    uint32_t size = heap->size, last = (size + more) / ROTA_HEAP_LEAF_ENTRIES;
    int result = 0;
    if (heap->root) {
        rota_page *root = rota_page_at(h, heap->root);
        if (last < (root->is_large ? ROTA_HEAP_LARGE_LEAVES : ROTA_HEAP_SMALL_LEAVES) && rota_heap_leaves(root)[last])
            return 0; /* leaves are added in their order */
    }
    for (uint32_t leaf = size / ROTA_HEAP_LEAF_ENTRIES; leaf <= last && !result; leaf++) {
        heap->size = leaf * ROTA_HEAP_LEAF_ENTRIES;
        result = rota_heap_extend(h, heap);
    }
    heap->size = size;
    return result;
}

/* The caller has saved the line that holds `heap`. */
static inline int rota_heap_push(const rota_handle *h, rota_heap *heap, uint64_t key, uint64_t id, rota_slot_ref slot) {
    rota_heap_entry entry = {key, id, slot, 0};
    if (rota_heap_extend(h, heap) < 0)
        return -1;
    uint32_t index = heap->size++;
    while (index) {
        uint32_t parent = (index - 1) / 2;
        rota_heap_entry *above = rota_heap_at(h, heap, parent);
        if (!rota_heap_before(&entry, above))
            break;
        rota_heap_set(h, heap, index, above);
        index = parent;
    }
    rota_heap_set(h, heap, index, &entry);
    return 0;
}

static inline const rota_heap_entry *rota_heap_top(const rota_handle *h, const rota_heap *heap) {
    return heap->size && heap->size <= ROTA_HEAP_SIZE_MAX ? rota_heap_at(h, heap, 0) : NULL;
}

/* Drop the top.  The caller has saved the line that holds `heap`. */
static inline void rota_heap_pop(const rota_handle *h, rota_heap *heap) {
    if (!heap->size)
        return;
    uint32_t size = --heap->size;
    if (!size)
        return;
    rota_heap_entry last = *rota_heap_at(h, heap, size);
    uint32_t index = 0;
    for (;;) {
        uint32_t child = 2 * index + 1;
        if (child >= size)
            break;
        rota_heap_entry *lower = rota_heap_at(h, heap, child);
        if (child + 1 < size && rota_heap_before(rota_heap_at(h, heap, child + 1), lower))
            lower = rota_heap_at(h, heap, ++child);
        if (!rota_heap_before(lower, &last))
            break;
        rota_heap_set(h, heap, index, lower);
        index = child;
    }
    rota_heap_set(h, heap, index, &last);
}

#endif
