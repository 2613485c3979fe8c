# Made by man/generate.py from the table of switches and the source beside this file; change those.

from contextlib import _GeneratorContextManager
from mlbackends import cpu as cpu
from mlbackends import cuda as cuda
from mlbackends import cudnn as cudnn
from mlbackends import cusparselt as cusparselt
from mlbackends import kleidiai as kleidiai
from mlbackends import mha as mha
from mlbackends import miopen as miopen
from mlbackends import mkl as mkl
from mlbackends import mkldnn as mkldnn
from mlbackends import mps as mps
from mlbackends import nnpack as nnpack
from mlbackends import openmp as openmp
from mlbackends import opt_einsum as opt_einsum
from mlbackends import python_native as python_native
from mlbackends import quantized as quantized
from mlbackends import sdpa as sdpa
from mlbackends import xeon as xeon
from mlbackends import xnnpack as xnnpack
from mlbackends.base.version import __version__ as __version__
from mlbackends.sdpa import CausalBias as CausalBias
from mlbackends.sdpa import CausalVariant as CausalVariant
from mlbackends.sdpa import SDPBackend as SDPBackend
from mlbackends.sdpa import causal_lower_right as causal_lower_right
from mlbackends.sdpa import causal_upper_left as causal_upper_left
from mlbackends.sdpa import last_attention as last_attention
from mlbackends.sdpa import replace_attention as replace_attention
from mlbackends.sdpa import scaled_dot_product_attention as scaled_dot_product_attention
from mlbackends.sdpa import scaled_dot_product_attention_backward as scaled_dot_product_attention_backward
from mlbackends.sdpa import sdpa_kernel as sdpa_kernel
from mlbackends.sdpa.threads import get_num_threads as get_num_threads
from mlbackends.sdpa.threads import set_num_threads as set_num_threads
from mlbackends.survey import report as report
from mlbackends.switches import store as store
from mlbackends.switches.modules import ContextProp as ContextProp
from mlbackends.switches.modules import FP32Precision as FP32Precision
from mlbackends.switches.modules import PropModule as PropModule
from mlbackends.switches.modules import disable_global_flags as disable_global_flags
from mlbackends.switches.modules import flags_frozen as flags_frozen
from mlbackends.switches.modules import get_float32_matmul_precision as get_float32_matmul_precision
from mlbackends.switches.modules import set_float32_matmul_precision as set_float32_matmul_precision
from mlbackends.switches.store import freeze_lifted as freeze_lifted
from mlbackends.switches.store import load_file as load_file
from mlbackends.tracing.session import trace as trace

fp32_precision: str
class GenericModule(PropModule):
    fp32_precision: str
def set_flags(_fp32_precision: str | None = 'none') -> tuple[str]: ...
def flags(fp32_precision: str | None = 'none') -> _GeneratorContextManager[None]: ...
_FP32Precision = FP32Precision
__allow_nonbracketed_mutation = freeze_lifted
flag_store = store
load_flags = load_file
