"""What answers a prompt.

base        a request in; text, tools, usage, cost and a result out
scripted    plays a file of turns: for the demo, the documentation and the tests
"""
