"""The subcommands, one file each; the file is named after the command."""
