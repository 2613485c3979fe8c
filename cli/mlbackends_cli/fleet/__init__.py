"""Many machines: commands, text, page and chart."""
