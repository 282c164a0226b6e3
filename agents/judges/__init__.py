"""Judges: functions from responses to scores, named by one text (`agents.judges.spec`).

Nothing heavy is imported here: the processes in which functions of the user run begin with this package.
"""
