"""oneDNN's scope, as `mlbackends.mkldnn.verbose`."""

from mlbackends.tracing.verbose.scope import Scope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mlbackends.tracing.verbose.switches import Family


class verbose(Scope):  # noqa: N801  torch's name
    """Have oneDNN print a line for each primitive, in every thread of this process, until the end.

    level: 0 silences (its error messages too), 1 prints executions, 2 creations as well. The lines go
    to the standard output of the process. As torch's, but the level that was found is given back, and
    0 silences. oneDNN tells nobody its level: but for torch's own scope around this one (up to Python
    3.13), what other code set without us is not seen, and what ONEDNN_VERBOSE asked for beyond the
    levels cannot be given back (a warning says so).
    """

    def __init__(self, level: int) -> None:
        super().__init__()
        self.level = level

    def _asked(self) -> "tuple[Family, int]":
        import os

        from mlbackends.tracing.verbose.environment import onednn_start
        from mlbackends.tracing.verbose.switches import Family, Symbol

        def is_success_code(answer: int, _level: int) -> bool:
            return answer == 0

        def is_truth(answer: int, _level: int) -> bool:
            return answer == 1

        family = Family(
            name="MKLDNN",
            symbols=(
                Symbol("dnnl_set_verbose", is_success_code),
                Symbol("mkldnn_set_verbose", is_success_code),
                # torch::verbose::_mkldnn_set_verbose(int): the copy inside libtorch_cpu.so.
                Symbol("_ZN5torch7verbose19_mkldnn_set_verboseEi", is_truth),
            ),
            level_readers=(),
            version_readers=("dnnl_version", "mkldnn_version"),
            start=lambda version: onednn_start(os.environ, version),
            file_names=("dnnl",),
            carriers=(
                "tensorflow",
                "xla_extension",
                "libjax",
                "openvino",
                "ctranslate2",
                "libmxnet",
            ),
            variable="ONEDNN_VERBOSE",
        )
        return family, self.level
