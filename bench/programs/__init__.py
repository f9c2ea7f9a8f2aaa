"""How each program is called: from a setting to a command."""
