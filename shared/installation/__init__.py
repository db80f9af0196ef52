"""What an administrator decides once: which rights each service has, which jobs an installation acts on, which
frameworks it knows.

`permissions.py` is the table of rights, `scope.py` and `apart.py` keep two installations off the same jobs,
`plugins.py` finds the frameworks of users and `guarded.py` contains their failures,
`risks.py` checks the settings of the log.
"""
