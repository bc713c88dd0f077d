"""Who trains together: addresses, the cluster, and what this machine is called."""
