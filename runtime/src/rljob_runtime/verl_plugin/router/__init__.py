"""The rollout of verl: its agent loops, the router of their requests, and the replicas that answer."""
