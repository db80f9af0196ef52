"""Real frameworks, run by Muster in the embedded cluster: each trains something small in several processes.

They alone can say that the environment, the names and the ends of the pods are what the frameworks want.
"""
