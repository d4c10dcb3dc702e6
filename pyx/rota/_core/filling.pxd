# What a recovery writes into the control file.
#
#     enter_files   all files, before the replay
#     settle_files  by the end that the replay found, and the list of the free ones
#     take_file     one for the first position of a log without a commit
#     fill_holes    new files where old ones were set aside
#     fill_control  the positions, last
from engine.status cimport rota_error

from rota._core.recovery cimport recovery

cdef void enter_files(recovery *r) noexcept nogil
cdef void settle_files(recovery *r) noexcept nogil
cdef int take_file(recovery *r, rota_error *error) noexcept nogil
cdef int fill_holes(recovery *r, rota_error *error) noexcept nogil
cdef void fill_control(recovery *r) noexcept nogil
