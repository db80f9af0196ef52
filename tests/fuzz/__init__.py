"""Coverage-guided fuzzing of everything that reads bytes of others.

`targets.py` has the readers, `mutation.py` changes their inputs, `corpus.py` has the inputs to begin with.
Two drivers use them: `guided.py` under atheris for `make fuzz`, `test_targets.py` in every run of the tests.
What was found once is a file in `found/<target>/`.
"""
