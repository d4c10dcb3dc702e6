# What a scan from a checkpoint's begin cannot find: loaded before the replay.
#
#     checkpoint_load   called by recovery when the manifest names a checkpoint, after the files were entered in the
#                       control file as FREE or with what the walk found, before any commit is applied
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.reader cimport log_reader

cdef int checkpoint_load(rota_handle *h, log_reader *reader, rota_error *error) noexcept nogil
