"""Judges: functions from responses to scores, named by one text (`cory.judges.parsing`).

Nothing heavy is imported here: the processes in which functions of the user run begin with this package.
"""
