"""Git calls that execute nothing a tree or a repository configures.

commands          runs git
remote            how a call reaches another repository
user_settings     the files that the user's own git settings name
index_file        reads git's index
program           the interface through which programs are run
repository_paths  the paths of a repository that a confined child may read and write
"""
