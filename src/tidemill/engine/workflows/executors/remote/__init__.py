"""Remote attempts: units of a cluster, such as pods, run them, and outlive the node that launched them."""
