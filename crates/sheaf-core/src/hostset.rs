//! Host sets: the grammar of ClusterShell's `nodeset`, folded back when printed.
