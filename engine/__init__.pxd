# engine is a package of declarations: C headers and what Cython needs to know of them.
