"""Our own git calls. They execute nothing that a tree or a repository configures.

commands          runs git
program           the interface through which programs are run
repository_paths  where a repository keeps its files, for a fence that lets git work
"""
