"""A folder of kept reports: one SQLite database, to which a run adds each report as it arrives.

A run is written in a thread that commits whenever no report is waiting, so that a process that is killed
loses at most what came in the last moments. While it writes, the journal is a write-ahead log, which lets
others read; on a network file system, where that is unsafe, and at rest it is a rollback journal, so that
the folder can be copied and read where it cannot be written to. Reports are stored as they came; next to each
is its configuration, the fingerprints of its sections, whose facts are stored once.
Sources: sqlite.org/wal.html, sqlite.org/howtocorrupt.html.
"""

import os
import queue
import sqlite3
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from mlbackends.base.errors import BadInput, why_not
from mlbackends.base.mounts import check, mount_of
from mlbackends.base.patterns import pattern
from mlbackends.base.version import __version__
from mlbackends.base.writable import clean
from mlbackends.fleet.collection import Collection, Section, fit_name
from mlbackends.fleet.frames import REPORT_LIMIT
from mlbackends.fleet.sources import FILE
from mlbackends.host.files import flags
from mlbackends.model.fleet import Envelope, Status
from mlbackends.model.history import Asked, Run
from mlbackends.model.records import FactValue

#: The version of the tables, and what marks the file as ours.
VERSION = 1
_APPLICATION = 0x4D4C4246
_TABLES = (
    """CREATE TABLE runs (id INTEGER PRIMARY KEY AUTOINCREMENT, started REAL NOT NULL, ended REAL,
        tool TEXT NOT NULL, asked TEXT NOT NULL, expected TEXT NOT NULL)""",
    """CREATE TABLE reports (id INTEGER PRIMARY KEY, run INTEGER NOT NULL, node TEXT NOT NULL,
        received REAL NOT NULL, status TEXT NOT NULL, error TEXT NOT NULL, exit_code INTEGER,
        configuration INTEGER)""",
    "CREATE INDEX reports_of_nodes ON reports (run, node)",
    "CREATE TABLE contents (report INTEGER PRIMARY KEY, data BLOB NOT NULL)",
    """CREATE TABLE sections (id INTEGER PRIMARY KEY, probe TEXT NOT NULL, fingerprint TEXT NOT NULL,
        facts BLOB NOT NULL, UNIQUE (probe, fingerprint))""",
    "CREATE TABLE configurations (id INTEGER PRIMARY KEY, sections TEXT NOT NULL UNIQUE)",
    "CREATE TABLE varying (name TEXT PRIMARY KEY)",
)
#: A node's failure counts only if nothing came from it in the same run afterwards, as after --resume.
_PAGE = """
    SELECT id, node, status, error, exit_code, data FROM reports LEFT JOIN contents ON report = id
    WHERE run = ?1 AND id > ?2 AND (status = 'ok' OR NOT EXISTS (
        SELECT 1 FROM reports AS later WHERE later.run = ?1 AND later.node = reports.node
        AND later.id > reports.id))
    ORDER BY id LIMIT 256"""
_ROWS = """
    SELECT id, CAST(node AS TEXT), CAST(status AS TEXT), CAST(error AS TEXT), configuration
    FROM reports WHERE run = ? ORDER BY id"""
_REMOVALS = (
    "DELETE FROM contents WHERE report IN (SELECT id FROM reports WHERE run = ?)",
    "DELETE FROM reports WHERE run = ?",
    "DELETE FROM runs WHERE id = ?",
)
_UNUSED = """
    DELETE FROM configurations WHERE id NOT IN (
        SELECT configuration FROM reports WHERE configuration IS NOT NULL)"""
_BUSY_SECONDS = 60.0
#: In the year 5138.
_LAST_SECOND = 1e11
#: The most reports that wait to be written, and that are written at once.
_MOST_WAITING, _MOST_AT_ONCE = 64, 64
_CACHED_SECTIONS = 4000
#: Of zlib: 7 % more bytes than level 6, in little more than half of the time.
_LEVEL = 3
_CODE = pattern(r"\bexit code (\d{1,9})\b")
_HINT = "`backends fleet run --keep DIR` makes such a folder"


@contextmanager
def opened(path: str, *, writes: bool = False, creates: bool = False) -> "Iterator[Folder]":
    """Open a folder. Raises BadInput for one that is missing, damaged, foreign or of a newer version."""
    file = os.path.join(path, FILE)
    check(path)
    try:
        if creates:
            os.makedirs(path, 0o700, exist_ok=True)
            with suppress(FileExistsError):  # it is private, and SQLite's journals have its permissions
                os.close(os.open(file, flags("O_CREAT", "O_EXCL", "O_RDWR", "O_NOFOLLOW"), 0o600))
        is_ours = stat.S_ISREG(os.lstat(file).st_mode)
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and not creates:
            raise BadInput(f"{path} is not a folder of kept reports", _HINT) from None
        raise _unusable(path, creates, getattr(error, "strerror", "") or str(error)) from None
    if not is_ours:
        raise BadInput(f"{file} is not a regular file", "a link there could lead anywhere")
    uri = f"{Path(os.path.abspath(file)).as_uri()}?mode=rw"
    with ExitStack() as stack:
        with _errors(path, writes=creates):
            db = sqlite3.connect(uri, _BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=True)
            stack.callback(db.close)
            db.text_factory = lambda data: data.decode(errors="replace")
            folder = Folder(path, db)
            folder.check_version(creates=creates)
            if not writes:
                db.execute("PRAGMA query_only = 1")
            elif not mount_of(file):
                stack.callback(_leave, db)
                with suppress(sqlite3.OperationalError):  # another run has it open
                    db.execute("PRAGMA journal_mode = WAL")
        with _errors(path, writes=writes), folder.transaction() if writes else nullcontext():
            pass  # better now than after a run
        yield folder


def _leave(db: sqlite3.Connection) -> None:
    """Leave a rollback journal, unless others have the database open: then it can be read anywhere."""
    with suppress(sqlite3.Error):
        db.execute("PRAGMA busy_timeout = 0")
        db.execute("PRAGMA journal_mode = DELETE")


@contextmanager
def _errors(path: str, *, writes: bool = False) -> Iterator[None]:
    """Turn errors of SQLite, and values that are not ours, into BadInput."""
    try:
        yield
    except BadInput:
        raise
    except (sqlite3.Error, zlib.error, ValueError, TypeError, OverflowError) as error:
        raise _unusable(path, writes, why_not(error)) from None


class Folder:
    """An open folder. Its methods raise BadInput for what cannot be read."""

    def __init__(self, path: str, db: sqlite3.Connection) -> None:
        self.path, self.db = path, db
        self.errors = partial(_errors, path)

    def check_version(self, *, creates: bool) -> None:
        """Make the tables in an empty file. Raises BadInput for those of others, or of a newer version."""

        def version() -> int:
            return int(self.db.execute("PRAGMA user_version").fetchone()[0])

        is_empty = "SELECT count(*) = 0 FROM sqlite_master"
        if creates and self.db.execute(is_empty).fetchone()[0]:
            self.db.execute("PRAGMA auto_vacuum = FULL")
            with self.transaction():
                if self.db.execute(is_empty).fetchone()[0]:  # else another run made the tables meanwhile
                    self.db.execute(f"PRAGMA application_id = {_APPLICATION}")
                    self.db.execute(f"PRAGMA user_version = {VERSION}")
                    for table in _TABLES:
                        self.db.execute(table)
        if self.db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
            raise BadInput(f"{self.path} has no database of kept reports, but another", _HINT)
        if version() > VERSION:
            found = f"{self.path} has version {version()} of the tables; this version reads {VERSION}"
            raise BadInput(found, "use the version of backends that wrote it")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what the block writes, or nothing of it."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.db.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self.db.execute("ROLLBACK")
            raise

    # ---- reading -----------------------------------------------------------------------------------

    def runs(self) -> list[Run]:
        """Return the runs, the oldest first."""
        query = "SELECT id, started, ended, asked, expected FROM runs ORDER BY id"
        with self.errors():
            return [
                Run(
                    int(number),
                    _time(started),
                    None if ended is None else _time(ended),
                    msgspec.json.decode(asked, type=Asked),
                    _names(msgspec.json.decode(expected, type=tuple[str, ...] | int | None)),
                )
                for number, started, ended, asked, expected in self.db.execute(query)
            ]

    def run(self, which: str = "") -> Run:
        """Return the run with a number, the newest that began on a day or in a month, or the newest of all.

        Raises BadInput.
        """
        runs = self.runs()
        by_day = "-" in which
        for run in reversed(runs):
            name = local(run.started)[: len(which)] if by_day else str(run.number)
            if not which or name == which:
                return run
        numbers = f"it has {runs[0].number} to {runs[-1].number}" if runs else "it has no runs"
        missing = f"{self.path} has no run {which}" if which else f"{self.path} has no runs"
        raise BadInput(missing, f"{numbers}; `backends fleet history` lists them" if which else _HINT)

    def last_of_ours(self) -> Run:
        """Return the newest run. Raises BadInput where another user could have written what it asks."""
        file = os.path.join(self.path, FILE)
        if hasattr(os, "geteuid") and os.stat(file).st_uid != os.geteuid():
            raise BadInput(f"{file} belongs to another user; the command in it is not run")
        return self.run()

    def envelopes(self, run: int) -> Iterator[Envelope]:
        """Yield what nodes reported in a run, as it arrived; without a lock between pages."""
        last = -1
        while True:
            with self.errors():
                page = self.db.execute(_PAGE, (run, last)).fetchall()
            if not page:
                return
            for last, node, status, error, code, data in page:  # noqa: B007  where the next page begins
                with self.errors():
                    envelope = Envelope(
                        node=str(node),
                        status=Status(status),
                        error=str(error),
                        exit_code=code,
                        report=UNSET if data is None else Raw(_unpacked(data)),
                    )
                yield envelope

    def rows(self, run: int) -> Iterator[tuple[int, str, str, str, int | None]]:
        """Yield the number of each report of a run, its node, status, error and configuration.

        The configuration is None where there is no report that can be used.
        """
        with self.errors():
            for number, node, *rest in self.db.execute(_ROWS, (run,)):
                yield number, fit_name(node), *rest

    def content(self, report: int) -> bytes:
        """Return a stored report."""
        with self.errors():
            query = "SELECT data FROM contents WHERE report = ?"
            return _unpacked(self.db.execute(query, (report,)).fetchone()[0])

    def sections_of(self, configuration: int) -> frozenset[int]:
        """Return the numbers of a configuration's sections."""
        query = "SELECT sections FROM configurations WHERE id = ?"
        with self.errors():
            return frozenset(map(int, str(self.db.execute(query, (configuration,)).fetchone()[0]).split()))

    @lru_cache(maxsize=_CACHED_SECTIONS)  # noqa: B019  a command opens one folder
    def section(self, number: int) -> Section:
        """Return a section; its facts without those that are not compared because each node has its own."""
        query = "SELECT probe, fingerprint, facts FROM sections WHERE id = ?"
        with self.errors():
            probe, fingerprint, data = self.db.execute(query, (number,)).fetchone()
            facts = msgspec.json.decode(_unpacked(data), type=dict[str, FactValue])
            return Section(str(probe), str(fingerprint), facts)

    def facts(self) -> dict[str, None]:
        """Return the names of all facts that a kept report has."""
        with self.errors():
            numbers = [number for (number,) in self.db.execute("SELECT id FROM sections")]
        return dict.fromkeys(name for number in numbers for name in self.section(number).facts)

    def varying(self) -> set[str]:
        """Return the facts that had too many values in some run to be compared."""
        with self.errors():
            return {str(name) for (name,) in self.db.execute("SELECT name FROM varying")}

    # ---- writing -----------------------------------------------------------------------------------

    def prune(self, numbers: Sequence[int]) -> int:
        """Remove runs, and what only they used; return the number of removed reports."""
        runs = [(number,) for number in numbers]
        with self.errors(writes=True), self.transaction():
            before = self.db.execute("SELECT count(*) FROM reports").fetchone()[0]
            for statement in _REMOVALS:
                self.db.executemany(statement, runs)
            self.db.execute(_UNUSED)
            texts = self.db.execute("SELECT sections FROM configurations").fetchall()
            used = {int(part) for (text,) in texts for part in text.split()}
            every = self.db.execute("SELECT id FROM sections").fetchall()
            unused = [key for key in every if key[0] not in used]
            self.db.executemany("DELETE FROM sections WHERE id = ?", unused)
            return int(before - self.db.execute("SELECT count(*) FROM reports").fetchone()[0])


def _unusable(path: str, writes: bool, why: str) -> BadInput:
    if why in ("file is not a database", "database disk image is malformed"):
        hint = f"what is left: sqlite3 {os.path.join(path, FILE)} .recover"
        return BadInput(f"{path} is damaged: {why}", hint)
    return BadInput(f"{path} cannot be {'written' if writes else 'read'}: {why}")


def _unpacked(data: bytes) -> bytes:
    """Return what was compressed. Raises zlib.error."""
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(data, REPORT_LIMIT)
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise zlib.error("a report is cut off, or larger than any")
    return text


def _names(expected: tuple[str, ...] | int | None) -> tuple[str, ...] | int | None:
    return tuple(map(fit_name, expected)) if isinstance(expected, tuple) else expected


def _time(value: Any) -> float:
    """Return a time. Raises ValueError for one that no clock shows."""
    if not 0 <= (seconds := float(value)) < _LAST_SECOND:
        raise ValueError("a run has no valid time")
    return seconds


def local(seconds: float) -> str:
    """Return a time as people here write it: 2026-11-03 14:05."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


class Keeper:
    """Adds the reports of a run to a folder, in a thread. failure: why it had to stop. lost: since then.

    run: the number of an earlier run to go on with. A new one is made with its first report.
    """

    def __init__(
        self,
        folder: Folder,
        asked: Asked,
        expected: tuple[str, ...] | int | None,
        run: int | None = None,
    ) -> None:
        self.failure = ""
        self.lost = 0
        self.run = run
        self._folder, self._db = folder, folder.db
        records = (msgspec.json.encode(record).decode() for record in (asked, expected))
        self._fields = (*records, f"backends {__version__}", time.time())
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(_MOST_WAITING)
        self._known: dict[int, int] = {}
        self._varying = 0
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def add(self, node: str, envelope: Envelope, collection: Collection | None) -> None:
        """Keep an envelope. collection: the one that has just accepted its report, else None."""
        sections: list[Section] = []
        varying: tuple[str, ...] = ()
        if collection is not None:
            sections = [collection.sections[number] for number in collection.latest]
            if len(collection.varying) > self._varying:
                self._varying, varying = len(collection.varying), tuple(collection.varying)
        self._queue.put(partial(self._insert, time.time(), node, envelope, sections, varying))

    def close(self) -> None:
        """Wait until all that was added is written."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()

    def finish(self, *, is_whole: bool) -> None:
        """Close it, and note whether every node had its time, that is whether the run has ended."""
        self.close()
        try:
            if not self.failure:
                values = (time.time() if is_whole else None, self.run)
                self._db.execute("UPDATE runs SET ended = ? WHERE id = ?", values)
        except sqlite3.Error as error:
            self.failure = str(error)

    def _work(self) -> None:
        batch: list[Callable[[], None] | None] = []
        while None not in batch:
            batch = [self._queue.get()]
            while len(batch) < _MOST_AT_ONCE and not self._queue.empty():
                batch.append(self._queue.get())
            items = [*filter(None, batch)]
            try:
                if not self.failure:
                    with self._folder.transaction():
                        if items and self.run is None:
                            into = "INSERT INTO runs (asked, expected, tool, started) VALUES (?, ?, ?, ?)"
                            self.run = self._db.execute(into, self._fields).lastrowid
                        for insert in items:
                            insert()
            except Exception as error:  # noqa: BLE001  the run would wait for a thread that has ended
                self.failure = str(error)
            self.lost += len(items) if self.failure else 0

    def _insert(
        self, received: float, node: str, envelope: Envelope, sections: list[Section], varying: Iterable[str]
    ) -> None:
        match = _CODE.search(envelope.error)
        code = int(match[1]) if match else envelope.exit_code
        values = (
            self.run, clean(node), received, str(envelope.status), clean(envelope.error),
            code, self._configuration(sections) if sections else None,
        )  # fmt: skip
        into = "INSERT INTO reports (run, node, received, status, error, exit_code, configuration)"
        number = self._db.execute(f"{into} VALUES (?, ?, ?, ?, ?, ?, ?)", values).lastrowid
        if isinstance(envelope.report, Raw):
            packed = zlib.compress(envelope.report, _LEVEL)
            self._db.execute("INSERT INTO contents VALUES (?, ?)", (number, packed))
        names = [(clean(name),) for name in varying]
        self._db.executemany("INSERT OR IGNORE INTO varying VALUES (?)", names)

    def _configuration(self, sections: list[Section]) -> int:
        """Return the number of a configuration, which is stored if it is new."""
        key = hash(tuple(section.fingerprint for section in sections))
        if key not in self._known:
            text = " ".join(map(str, sorted(map(self._section, sections))))
            self._db.execute("INSERT OR IGNORE INTO configurations (sections) VALUES (?)", (text,))
            find = "SELECT id FROM configurations WHERE sections = ?"
            self._known[key] = self._db.execute(find, (text,)).fetchone()[0]
        return self._known[key]

    def _section(self, section: Section) -> int:
        key = (section.probe, section.fingerprint)
        find = "SELECT id FROM sections WHERE probe = ? AND fingerprint = ?"
        if (row := self._db.execute(find, key).fetchone()) is not None:
            return int(row[0])
        packed = zlib.compress(msgspec.json.encode(section.facts), _LEVEL)
        into = "INSERT INTO sections (probe, fingerprint, facts) VALUES (?, ?, ?)"
        return int(self._db.execute(into, (*key, packed)).lastrowid or 0)
