# What a transaction gives back.
from rota._core.store cimport Store

cdef int claimed_again(object claimed) except -1
cdef int give_back(Store store, list claims, bint excused, object durability) except -1
