# Building a repository directory whose log somebody else writes.
from engine.handle cimport rota_handle
from engine.status cimport rota_error

from rota._core.inspection cimport Directory

cdef class Builder:
    cdef rota_handle *h  # of the directory
    cdef rota_error error
    cdef Directory directory
