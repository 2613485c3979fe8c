"""What instances print, in files and on the console: each line there is tagged by its instance.

A program writes straight into its files; they are read again for the console. So nothing is lost
when the launcher is killed, and a slow console holds no program up.
"""

import os
import time

from mlbackends.model.errors import BadInput

_PIECE = 1 << 16
_LONGEST_LINE = 1 << 20
_PAUSE_SECONDS = 0.01
_STREAMS = {1: "stdout.log", 2: "stderr.log"}


def new_run_folder(log_path: str) -> str:
    """Make and return the folder of this run, <log_path>/run_<time>_<process>/attempt_0.

    Raises BadInput where it cannot be made.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for attempt in range(1000):
        suffix = f"_{attempt}" if attempt else ""
        run = os.path.join(log_path, f"run_{stamp}_{os.getpid()}{suffix}")
        try:
            os.makedirs(run)
        except FileExistsError:
            if os.path.isdir(run):
                continue
            raise BadInput(f"logs cannot be written below {log_path}: not a folder") from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise BadInput(f"logs cannot be written below {log_path}: {reason}") from None
        return os.path.join(run, "attempt_0")
    raise BadInput(
        f"logs cannot be written below {log_path}: a thousand runs of this second are there"
    )


class InstanceLogs:
    """The two log files of an instance, <folder>/<index>/stdout.log and stderr.log.

    writers: for each standard stream, 1 and 2, the descriptor that the program gets.
    """

    def __init__(self, folder: str, index: int, prefix: str) -> None:
        place = os.path.join(folder, str(index))
        self.writers: dict[int, int] = {}
        self._followed: list[_FollowedFile] = []
        try:
            os.makedirs(place, exist_ok=True)
            for stream, name in _STREAMS.items():
                path = os.path.join(place, name)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self.writers[stream] = os.open(path, flags, 0o644)
                tag = f"[{prefix}{index}]:".encode(errors="surrogateescape")
                self._followed.append(_FollowedFile(path, stream, tag))
        except OSError as error:
            self.close()
            raise BadInput(f"logs cannot be written in {place}: {error.strerror}") from None

    def close_writers(self) -> None:
        """Close our copies of what the program got."""
        for descriptor in self.writers.values():
            os.close(descriptor)
        self.writers.clear()

    def show(self) -> None:
        """Print the lines that were written since."""
        for file in self._followed:
            file.show()

    def close(self) -> None:
        """Print what is left, a last line without an end included, and close all."""
        self.close_writers()
        for file in self._followed:
            file.close()
        self._followed.clear()


class _FollowedFile:
    def __init__(self, path: str, stream: int, tag: bytes) -> None:
        self._handle = os.open(path, os.O_RDONLY)
        self._stream = stream
        self._tag = tag
        self._rest = b""
        self._is_shown = True

    def show(self) -> None:
        while piece := os.read(self._handle, _PIECE):
            *lines, self._rest = (self._rest + piece).split(b"\n")
            if len(self._rest) > _LONGEST_LINE:
                lines.append(self._rest)
                self._rest = b""
            self._print(lines)

    def close(self) -> None:
        self.show()
        if self._rest:
            self._print([self._rest])
        os.close(self._handle)

    def _print(self, lines: list[bytes]) -> None:
        text = b"".join(self._tag + line + b"\n" for line in lines)
        while text and self._is_shown:
            try:
                text = text[os.write(self._stream, text) :]
            except BlockingIOError:
                time.sleep(_PAUSE_SECONDS)
            except OSError:  # the console is gone; the files go on
                self._is_shown = False
