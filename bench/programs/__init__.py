"""How each program is called: functions from a setting to a command."""
