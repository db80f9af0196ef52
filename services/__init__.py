"""The four services: watcher, scheduler, scaler, status.  They share `shared` and never import each other."""
