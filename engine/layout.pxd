# What `rota/layout.h` declares, for Cython; the header says what it means.
cdef extern from "rota/layout.h" nogil:
    enum:
        ROTA_LAYOUT_COUNT
    ctypedef struct rota_layout_field:
        const char *structure
        const char *field
        size_t offset
        size_t size
        size_t structure_size
    const rota_layout_field *rota_layout
