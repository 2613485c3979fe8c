"""A picture of the machine, drawn from a report as SVG."""
