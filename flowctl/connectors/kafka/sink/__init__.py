"""Topics as a target: rows become messages, in one transaction with the record of their commit."""
