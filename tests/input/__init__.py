"""Documents of every kind, from its definition and against it, through all that Muster does with one.

`kinds.py` has the kinds, `generated.py` makes documents, `life.py` plays an accepted one through the core.
`make input DOCUMENTS=10000` runs many; every run of the tests some.
"""
