# Made by man/generate.py from the table of switches and the source beside this file; change those.

from mlbackends.testing.attention import UsableAttention as UsableAttention
from mlbackends.testing.devices import torch_device as torch_device
from mlbackends.testing.element_types import unsupported as unsupported
from mlbackends.testing.loadable import requires_loadable as requires_loadable
from mlbackends.testing.loadable import why_not_loadable as why_not_loadable
from mlbackends.testing.requirements import why_unmet as why_unmet
from mlbackends.testing.tolerances import Tolerance as Tolerance
from mlbackends.testing.tolerances import tolerance as tolerance

