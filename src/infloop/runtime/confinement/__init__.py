"""What the children of a run may reach: files, network, keys.

fence           builds the fence around a run's children
egress_log      reports each egress decision to the run, the audit log and the metrics
git_protection  keeps children from planting files that git executes
disk_reserve    disk space that no run may use up
homes           a confined agent's home, kept from one round to the next
programs        runs git and other programs for the workspace, in the sandbox
workdirs        checks that a run works in the directory it worked in before
"""
