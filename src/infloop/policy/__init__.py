"""Pure decisions: data in, verdict out, nothing is done.

budget        how much a run may use up
environment   which variables a child gets
spending      whether more money may be spent
"""
