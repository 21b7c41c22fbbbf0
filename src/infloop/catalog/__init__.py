"""Finding and reading the files that say what to run.

    files       a file read within bounds; a folder of them, the broken ones reported
    workflows   a workflow by path or id, with every workflow it calls
    saving      … saved: checked first, and nobody's work overwritten
    providers   the providers of a folder of manifests, or of connections
    agents      the agents that a user or a project has defined for a program
    connections machines with model servers, which become providers
    triggers    what starts workflows by itself: found, written, given a new address
    secrets     what nobody is to read of triggers and providers
    plugins     who sends webhooks: those of a folder over those that come with infloop
    desk        … where a webhook looks all of it up

An id is the plain name of a file in a folder and can never lead out of it. What is broken is
reported with its place and never guessed at.
"""

from infloop.catalog.providers import ProviderFiles
from infloop.catalog.workflows import LIBRARY_DIR, Bundle, Entry, WorkflowCatalog

__all__ = ["LIBRARY_DIR", "Bundle", "Entry", "ProviderFiles", "WorkflowCatalog"]
