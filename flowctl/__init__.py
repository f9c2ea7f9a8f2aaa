"""flowctl: a config-driven ELT runner on Apache Spark. Validate, plan, apply; exactly once, no user code."""

__version__ = "0.1.0"
