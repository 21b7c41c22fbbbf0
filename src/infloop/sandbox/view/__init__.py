"""Which files and directories a confined child sees.

mounts               a child's file view as arguments for bubblewrap
root_directory       how this machine's root directory is laid out
system_paths         the parts of the system that every confined child may use
program_paths        what must be visible for a child's programs to run
observed_files       remembers what was seen of files, and tells whether it is different
opened_paths         opens what a child may reach, to compare it with what it gets
path_permissions     checks path permissions as another uid
private_directories  a child's own home and temporary directory
scratch              the directory that contains them
"""
