"""Finds and reads the files that define what runs.

    files        reads a file within limits; reads a folder and reports invalid files
    loop_files   reads a loop file, and the files that it names
    python_files builds a workflow file in Python, in the sandbox
    workflows    a workflow by path or id, with every workflow it calls
    converting   a JSON file becomes a loop file, and the other way
    saving       saves a workflow: checked, and only over the version that was edited
    providers    the providers of a folder of manifests, or of connections
    agents       the agents that a user or a project defines for a program
    connections  machines with model servers, which become providers
    triggers     reads, writes and renames triggers
    installation the files of another installation, read without trusting it
    dev_files    the configuration of a development loop
    secrets      the secrets in triggers and provider files
    plugins      senders of webhooks: those of a folder override the shipped ones
    lookup       finds triggers, plugins and workflows for a webhook

An id is the plain name of a file in a folder and can never lead out of it. Invalid files are
reported with their place.
"""

from infloop.catalog.providers import ProviderFiles
from infloop.catalog.workflows import LIBRARY_DIR, Bundle, WorkflowCatalog, WorkflowFile

__all__ = ["LIBRARY_DIR", "Bundle", "ProviderFiles", "WorkflowCatalog", "WorkflowFile"]
