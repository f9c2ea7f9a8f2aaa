"""`flowctl init`: a spec for what is in a database or a folder, with the reason for each guess.

    survey ──▶ guess ──▶ render ──▶ check ──▶ file

A source describes its tables (:mod:`flowctl.connectors.survey`); :mod:`.guess` decides, as a pure function;
:mod:`.render` writes YAML; :mod:`.check` plans it, and what the plan refuses is changed or left out.
"""
