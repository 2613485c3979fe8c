"""Plots of a trace, as SVG without a script: bars, lanes, points. Colours are left to the page."""
