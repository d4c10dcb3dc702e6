/*
 * Kernels on the control file: saving a line before its change, pages by number, slots by address.
 *
 * What holds:
 *  1. rota_save() comes before the first change of a line in a section under the lock; rota_settle_undo() ends the
 *     section.  Between them a death leaves enough to restore every line, in reverse order.
 *  2. A page that was free when the section began needs no saving, except for its first line (the free list's link).
 *  3. A number from the file is never followed outside the mapped window: a wrong one names page 0, which is empty.
 *  4. Nothing here can fail for want of room: rota_pool_room() is asked before the section begins.
 */
#ifndef ROTA_POOL_H
#define ROTA_POOL_H

#include <stddef.h>
#include <string.h>

#include "rota/atomics.h"
#include "rota/handle.h"

#define ROTA_UNDO_CLAIMS (1ull << 63)

/* Remember the 64-byte line that holds `address` (in the control or the claims file). */
static inline void rota_save(const rota_handle *h, const void *address) {
    rota_control *control = h->control;
    const uint8_t *line = (const uint8_t *)((uintptr_t)address & ~(uintptr_t)63);
    uint32_t count = control->undo_count;
    if (ROTA_UNLIKELY(count >= ROTA_UNDO_COUNT_MAX)) {
        control->undo_overflow = 1; /* a death from here on means a rebuild from the log */
        return;
    }
    rota_undo *undo = &control->undo[count];
    uint64_t offset = (uint64_t)(line - (const uint8_t *)control);
    undo->place = offset < h->window_bytes ? offset : (uint64_t)(line - (const uint8_t *)h->claims) | ROTA_UNDO_CLAIMS;
    memcpy(undo->bytes, line, 64);
    __atomic_store_n(&control->undo_count, count + 1, __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* the count is raised before the line changes */
}

/* The same for a line that a section may save again and again: only the first time counts, and takes room.  What this
 * handle remembers holds for one section: whoever takes the lock, and whoever ends a section, begins another. */
static inline void rota_save_once(const rota_handle *h, const void *address) {
    uint64_t place = (uint64_t)(uintptr_t)address & ~UINT64_C(63);
    uint32_t slot = (uint32_t)(place >> 6 ^ place >> 16) % ROTA_SAVED_COUNT; /* the first lines of pages lie apart */
    rota_handle *own = (rota_handle *)(uintptr_t)h;
    if (own->saved[slot].place == place && own->saved[slot].section == h->section)
        return;
    rota_save(h, address);
    own->saved[slot].place = place;
    own->saved[slot].section = h->section;
}

/* The section is whole: what it changed stays. */
static inline void rota_settle_undo(const rota_handle *h) {
    ((rota_handle *)(uintptr_t)h)->section++;
    __atomic_thread_fence(__ATOMIC_RELEASE);
    __atomic_store_n(&h->control->undo_count, 0, __ATOMIC_RELEASE);
    if (ROTA_UNLIKELY(h->control->undo_overflow))
        h->control->undo_overflow = 0;
}

/* Put the saved lines back, youngest first.  A second death inside restores the same lines again. */
static inline void rota_restore_undo(const rota_handle *h) {
    rota_control *control = h->control;
    uint32_t count = control->undo_count < ROTA_UNDO_COUNT_MAX ? control->undo_count : ROTA_UNDO_COUNT_MAX;
    for (uint32_t i = count; i-- > 0;) {
        const rota_undo *undo = &control->undo[i];
        uint64_t place = undo->place & ~ROTA_UNDO_CLAIMS;
        uint64_t limit = undo->place & ROTA_UNDO_CLAIMS ? h->claims_bytes : h->window_bytes;
        uint8_t *base = undo->place & ROTA_UNDO_CLAIMS ? (uint8_t *)h->claims : (uint8_t *)control;
        if (place % 64 == 0 && place + 64 <= limit)
            memcpy(base + place, undo->bytes, 64);
    }
    rota_settle_undo(h);
}

static inline rota_page *rota_page_at(const rota_handle *h, uint32_t number) {
    uint32_t limit = h->control->pool_limit;
    if (ROTA_UNLIKELY(number >= limit || number >= h->window_pages))
        number = 0;
    return (rota_page *)(h->pool + (uint64_t)number * ROTA_SMALL_PAGE);
}

static inline uint32_t rota_page_number(const rota_handle *h, const void *page) {
    return (uint32_t)(((const uint8_t *)page - h->pool) / ROTA_SMALL_PAGE);
}

static inline uint32_t rota_page_slots(const rota_page *page) {
    return page->is_large ? ROTA_LARGE_SLOTS : ROTA_SMALL_SLOTS;
}

static inline rota_slot *rota_page_slot(rota_page *page, uint32_t index) {
    if (ROTA_UNLIKELY(index >= rota_page_slots(page)))
        index = 0;
    return (rota_slot *)(page + 1) + index;
}

static inline rota_slot_ref rota_ref(uint32_t page, uint32_t index) { return (uint64_t)page << 16 | index; }
static inline uint32_t rota_ref_page(rota_slot_ref ref) { return (uint32_t)(ref >> 16); }
static inline uint32_t rota_ref_index(rota_slot_ref ref) { return (uint32_t)(ref & 0xffffu); }

/* The slot at an address that may be out of date: the caller compares the id. */
static inline rota_slot *rota_slot_at(const rota_handle *h, rota_slot_ref ref) {
    return rota_page_slot(rota_page_at(h, rota_ref_page(ref)), rota_ref_index(ref));
}

/* Large pages that can still be given out without growth. */
static inline uint32_t rota_pool_room(const rota_handle *h) {
    const rota_control *control = h->control;
    uint32_t unused = control->pool_limit > control->pool_next ? control->pool_limit - control->pool_next : 0;
    return control->free_large_count + unused / ROTA_PAGES_PER_LARGE;
}

static inline rota_page *rota_page_clear(const rota_handle *h, uint32_t number, int is_large, unsigned kind) {
    rota_page *page = rota_page_at(h, number);
    memset(page, 0, sizeof *page);
    page->kind = (uint16_t)kind;
    page->is_large = (uint8_t)is_large;
    return page;
}

/* Take a large page; its body is not cleared.  0 when there is none (the caller asked for room before). */
static inline uint32_t rota_page_take_large(const rota_handle *h, unsigned kind) {
    rota_control *control = h->control;
    rota_save(h, &control->pool_limit);
    uint32_t number = control->free_large;
    if (number) {
        rota_page *page = rota_page_at(h, number);
        rota_save(h, page);
        control->free_large = page->next;
        control->free_large_count--;
    } else {
        if (control->pool_next + ROTA_PAGES_PER_LARGE > control->pool_limit)
            return 0;
        number = control->pool_next;
        control->pool_next += ROTA_PAGES_PER_LARGE;
        rota_save(h, rota_page_at(h, number));
    }
    rota_page_clear(h, number, 1, kind);
    return number;
}

static inline uint32_t rota_page_take_small(const rota_handle *h, unsigned kind) {
    rota_control *control = h->control;
    if (!control->free_small) { /* break a large page: its sixteen small ones become the free list */
        uint32_t first = rota_page_take_large(h, ROTA_PAGE_FREE);
        if (!first)
            return 0;
        for (uint32_t i = 0; i < ROTA_PAGES_PER_LARGE; i++) {
            rota_page *page = rota_page_clear(h, first + i, 0, ROTA_PAGE_FREE);
            page->next = i + 1 < ROTA_PAGES_PER_LARGE ? first + i + 1 : 0;
        }
        control->free_small = first;
        control->free_small_count = ROTA_PAGES_PER_LARGE;
    }
    uint32_t number = control->free_small;
    rota_page *page = rota_page_at(h, number);
    rota_save(h, &control->pool_limit);
    rota_save(h, page);
    control->free_small = page->next;
    control->free_small_count--;
    rota_page_clear(h, number, 0, kind);
    return number;
}

/* Give a page back; it is the first to be used again. */
static inline void rota_page_give(const rota_handle *h, uint32_t number) {
    rota_control *control = h->control;
    rota_page *page = rota_page_at(h, number);
    if (page->kind == ROTA_PAGE_FREE)
        return;
    int is_large = page->is_large;
    rota_save(h, &control->pool_limit);
    rota_save(h, page);
    rota_page_clear(h, number, is_large, ROTA_PAGE_FREE);
    if (is_large) {
        page->next = control->free_large;
        control->free_large = number;
        control->free_large_count++;
    } else {
        page->next = control->free_small;
        control->free_small = number;
        control->free_small_count++;
    }
}

#endif
