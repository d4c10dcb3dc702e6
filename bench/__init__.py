"""Benchmarks of rota: `python -m bench` measures each figure of the performance table against its comparison.

bench/rows/   one function for each figure; a row measures the engine and what it is compared with in one run
bench/floor/  C programs of a few lines: what the machine itself needs for a step
bench/suite_paths.py  the hot paths for pytest-benchmark: `pytest bench/suite_paths.py --benchmark-enable`
"""
