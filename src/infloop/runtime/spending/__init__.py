"""What provider calls cost.

ledger        records every call and enforces the caps
broker_usage  tokens that the credential broker counted, whatever the agent reports
"""
