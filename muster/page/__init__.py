"""`muster ui`: jobs, timelines and the fleet in a browser, on this machine alone.

It reads with the rights that `muster get`, `history` and `why` use, has none of its own, and changes nothing.
All words come from `shared/telling`; the scripts below `static` draw them.
"""
