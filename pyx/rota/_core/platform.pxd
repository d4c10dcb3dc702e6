# The process's one platform table and one set of failpoints, for the other modules of the core.
#
#     from rota._core.platform cimport failpoints, table
#
# Both pointers are valid from the import of this module until the process ends.
from engine.failpoint cimport rota_failpoints
from engine.platform cimport rota_platform

cdef const rota_platform *table() noexcept nogil
cdef rota_failpoints *failpoints() noexcept nogil
