"""Log lines and metrics: `logs.py` writes the lines, `figures.py` holds metrics as values, `meters.py` has those of one
process, `metrics.py` serves them to Prometheus.
"""
