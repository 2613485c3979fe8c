"""Many machines at once: reports in frames and streams, their groups, and what differs between them."""
