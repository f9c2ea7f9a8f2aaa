"""Changes captured from a source: how they are kept, and how they become one row per key. Arrow only: knows no system
and starts no engine."""
