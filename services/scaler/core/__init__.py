"""The scaler's rules: the hosts files, and how a scale request is accepted, carried on and ended.  Pure."""
