"""What answers a prompt.

base               the interface: a request in; text, tools, usage, cost and a result out
cli/               transport `cli`: an agent that is a program
acp/               transport `acp`: an agent that speaks the Agent Client Protocol
http/              transport `http`: a model behind an HTTP API
scripted           plays a file of turns: for the demo, the documentation and the tests
shipped/           the manifests that come with infloop

approval_requests  questions that an agent asks a person
output_reader      reads what a provider prints, with an idle timeout
idle_timeout       how long to wait for a provider that says nothing
lines, json_lines  output cut into lines; one line of untrusted JSON
prices             tokens become money, or the cost stays unknown
"""
