"""The log: append, read, integrity; what differs between databases stands in one small file each."""
