"""Log lines and metrics: `logs.py` configures the lines, `metrics.py` holds counters, gauges and histograms,
`process_metrics.py` has those of one process.
"""
