"""The report page of a run: plots, tables, HTML."""
