# Recovery: from the files of a repository to a control file that says the same.
#
#     recover   called with the gate held, nobody attached, the manifest read, h.control fresh and zero but for its
#               sizes; afterwards the log may be appended to, and h.recovery tells what was found
from engine.handle cimport rota_handle
from engine.status cimport rota_error

cdef int recover(rota_handle *h, rota_error *error) noexcept nogil
