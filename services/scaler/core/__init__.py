"""The scaler's rules: who is in the hosts files, and how a scale request is accepted, carried out and ended.  Pure."""
