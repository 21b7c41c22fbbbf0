"""Applies an agent's changes to the user's branch, completely or not at all.

selection      which changes are the result of a run
apply          merge, check, write
merge          three trees into one, or the conflicts
review         which changes a person has to allow
added_secrets  to which files a change adds a secret
rollback       undoes an interrupted apply
"""
