"""Judges: functions from responses to scores, given by a specification (`cory.judges.parsing`).

Heavy packages are not imported here, since worker processes import this package first.
"""
