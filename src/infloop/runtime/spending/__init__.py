"""What provider calls cost.

ledger        every call is recorded, within the caps
broker_usage  tokens that the credential broker counted, whatever the agent reports
"""
