"""Real servers as plain processes: each a context manager that starts one on a free port and ends it."""
