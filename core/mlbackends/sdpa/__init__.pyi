# Made by man/generate.py from the table of switches and the source beside this file; change those.

from mlbackends.sdpa.attend import replace_attention as replace_attention
from mlbackends.sdpa.attend import scaled_dot_product_attention as scaled_dot_product_attention
from mlbackends.sdpa.attend import scaled_dot_product_attention_backward as scaled_dot_product_attention_backward
from mlbackends.sdpa.backend import Gradients as Gradients
from mlbackends.sdpa.bias import CausalBias as CausalBias
from mlbackends.sdpa.bias import CausalVariant as CausalVariant
from mlbackends.sdpa.bias import causal_lower_right as causal_lower_right
from mlbackends.sdpa.bias import causal_upper_left as causal_upper_left
from mlbackends.sdpa.calls import last_attention as last_attention
from mlbackends.sdpa.cuda_surface import SDPAParams as SDPAParams
from mlbackends.sdpa.switches import SDPBackend as SDPBackend
from mlbackends.sdpa.switches import sdpa_kernel as sdpa_kernel

