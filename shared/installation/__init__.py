"""One installation: the rights of its services, the scope in which it acts, and the frameworks that it knows.

`permissions.py` is the table of rights, `admission.py` that of the objects that each account may write.
`scope.py` keeps two installations off the same jobs.
`plugins.py` loads the frameworks of users, and contains their failures.
"""
