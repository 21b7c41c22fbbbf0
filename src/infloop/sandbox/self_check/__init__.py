"""Attacks an isolation level and compares the result with its promises.

battery   runs the attempts and reports
probes    the attempts, as a program that runs where children run
canaries  the files, sockets and processes that they try to reach
"""
