"""Change streams in a run: capture into the landing log, snapshots of tables, and rounds that apply what has landed."""
