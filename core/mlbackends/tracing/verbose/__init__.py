"""The scopes in which MKL and oneDNN print a line for each call: the copies this process really has.

Nothing is loaded for it: a scope finds the copies that are mapped at that moment, those inside torch's
own libraries among them, sets each and gives each back the level that it was found at.
"""

from mlbackends.tracing.verbose.mkl import verbose as MklVerbose  # noqa: N812  torch's name
from mlbackends.tracing.verbose.onednn import verbose as OnednnVerbose  # noqa: N812

__all__ = ["MklVerbose", "OnednnVerbose"]
