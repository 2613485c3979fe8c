"""XNNPACK: whether it is here, by itself or inside torch."""

from mlbackends.flag_modules import install

install(__name__, "XNNPACKEngine")
