"""Finds secrets in what children print: known ones, and what looks like a token of a service.

`rules.toml`      what tokens of common services look like, in the format of Gitleaks
`rules`           reads it, and finds the token that starts at a keyword
`entropy`         how random a text looks
`known`           how a known secret may be written: as it is, or encoded
`literals`        finds any of many literals in a text
`finder`          finds both kinds in a text
`guard`           redacts values and streams
`variables`       decides which environment variables hold secrets

This protects against accidents. A child that wants to leak can always write a secret in a form
that nobody thought of; the network rules stop it, not this.
"""
