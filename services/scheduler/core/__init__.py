"""The scheduler's rules: which slots a job has, and which pods and Services to create or delete.  Pure."""
