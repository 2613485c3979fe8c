"""MIOpen: AMD's deep-learning primitives. The switch is read by torch on ROCm."""

from mlbackends.switches.modules import install

install(__name__, "MiopenModule")
