"""Every fact and every decision there is, a file for each author; `catalog` has them all and says who may write which.

Facts are what was seen or happened, decisions what was decided.  Both are written once and read for ever: a new
field has a default; fields are never renamed, retyped or removed; tags are history.
Events carry keys, numbers and reasons (CamelCase words), never an object, an environment value, a script or a secret.
"""
