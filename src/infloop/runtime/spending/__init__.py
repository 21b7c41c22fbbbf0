"""What provider calls cost.

ledger            records every call and enforces the caps
metered_provider  a provider whose calls are in the ledger
broker_usage      tokens that the credential broker counted, whatever the agent reports
"""
