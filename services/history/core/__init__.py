"""The rules of the history service: whom it believes.  Pure."""
