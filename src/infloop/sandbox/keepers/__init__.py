"""Keepers: small processes that each own one child tree at a time.

keeper            the keeper program itself; stand-alone, standard library only
guard_child       … a `guard` child's last steps before exec
bubblewrap_child  … what a keeper does with a process that bubblewrap holds

connection        the server's connection to one keeper
pool              the keepers of all children, reused
child             one child from request to result
pipes             the server's ends of a child's pipes
stdin             input that is written in pieces
capture           a stream's first and last bytes, in bounded memory
fd_watcher        all descriptors of all children, watched by the event loop as one
passed_listeners  listening sockets that a keeper passes to the server
orphans           adopts and ends processes whose keeper died
child_records     children on disk, for cleaning up after a crash of server and keeper
"""
