"""MKL's scope, as `mlbackends.mkl.verbose`."""

from mlbackends.tracing.verbose.scope import Scope

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mlbackends.tracing.verbose.switches import Family


class verbose(Scope):  # noqa: N801  torch's name
    """Have MKL print a line for each call, in every thread of this process, until the scope ends.

    enable: 0 silences, 1 prints each call with its time; 2 prints the same on a CPU, and MKL before
    2022 has no 2. The lines go to the standard output of the process, or to the file that
    MKL_VERBOSE_OUTPUT_FILE names. As torch's, but the level that was found is given back, and 0
    silences.
    """

    def __init__(self, enable: int) -> None:
        super().__init__()
        self.enable = enable

    def _asked(self) -> "tuple[Family, int]":
        import os

        from mlbackends.tracing.verbose.environment import mkl_start
        from mlbackends.tracing.verbose.switches import Family, Symbol

        def obeyed(answer: int, level: int) -> bool:
            return answer == level  # the mode that is on now, -1 for one that it does not have

        family = Family(
            name="MKL",
            symbols=(Symbol("MKL_Verbose", obeyed), Symbol("mkl_verbose", obeyed)),
            level_readers=("mkl_serv_iface_verbose_mode", "mkl_serv_verbose_mode"),
            version_readers=(),
            start=lambda _version: mkl_start(os.environ),
            file_names=("libmkl", "mkl_"),
            carriers=(),
            variable="MKL_VERBOSE",
        )
        return family, self.enable
