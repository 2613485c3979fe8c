"""XNNPACK: whether it is here, by itself or inside torch."""

from mlbackends.switches.modules import install

install(__name__, "XNNPACKEngine")
