"""A folder of kept reports: one SQLite database, to which a run adds each report as it arrives.

A table has, for each run and node, the report that counts or why there is none. Next to it are the
fingerprints of the report's sections, whose facts are stored once, so that a history parses few reports.
Each report is a transaction. While a run writes, the journal is a write-ahead log, which is quick and lets
others read; on a network file system, where that is unsafe, and at rest it is a rollback journal, so that the
folder can be copied and read where it cannot be written to.
Sources: sqlite.org/wal.html, sqlite.org/howtocorrupt.html.
"""

import os
import sqlite3
import stat
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from mlbackends.base.errors import BadInput, why_not
from mlbackends.base.mounts import check, mount_of
from mlbackends.base.patterns import pattern
from mlbackends.base.version import __version__
from mlbackends.base.writable import clean
from mlbackends.fleet.collection import MISSING, Collection, Section, fit_name
from mlbackends.fleet.frames import REPORT_LIMIT
from mlbackends.host.files import flags
from mlbackends.model.fleet import Envelope, Status
from mlbackends.model.history import FILE, Asked, Run
from mlbackends.model.records import FactValue

#: The version of the tables, and what marks the file as ours.
VERSION = 1
_APPLICATION = 0x4D4C4246
#: asked, expected, varying: JSON of what Run has. sections: the JSON list of a report's sections, null where
#: there is no report that can be used. contents: apart, so that a history reads only fingerprints.
_TABLES = f"""
PRAGMA auto_vacuum = FULL;
BEGIN IMMEDIATE;
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {VERSION};
CREATE TABLE IF NOT EXISTS runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT, started REAL NOT NULL, ended REAL, tool TEXT NOT NULL,
    asked TEXT NOT NULL, expected TEXT NOT NULL, varying TEXT NOT NULL DEFAULT '[]');
CREATE TABLE IF NOT EXISTS reports (
    id INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE, node TEXT NOT NULL,
    received REAL NOT NULL, status TEXT NOT NULL, error TEXT NOT NULL, exit_code INTEGER, sections TEXT,
    UNIQUE (run, node));
CREATE TABLE IF NOT EXISTS contents (
    report INTEGER PRIMARY KEY REFERENCES reports ON DELETE CASCADE, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS sections (
    id INTEGER PRIMARY KEY, probe TEXT NOT NULL, fingerprint TEXT NOT NULL, facts BLOB NOT NULL,
    UNIQUE (probe, fingerprint));
COMMIT;
"""
_RUNS = """
    SELECT json_object('number', id, 'started', started, 'ended', ended, 'asked', json(asked),
        'expected', json(expected), 'varying', json(varying)) FROM runs ORDER BY id"""
_ENVELOPE = """
    SELECT node, status, error, exit_code, data FROM reports LEFT JOIN contents ON report = id
    WHERE id = ? AND status != 'missing'"""
_ANSWERS = """
    SELECT CAST(node AS TEXT), run, id, CAST(status AS TEXT), CAST(error AS TEXT), CAST(sections AS TEXT)
    FROM reports WHERE run IN (SELECT value FROM json_each(?)) ORDER BY node, run"""
_RUN = """
    INSERT INTO runs (id, asked, expected, tool, started) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET expected = excluded.expected"""
_REPORT = """
    INSERT OR REPLACE INTO reports (run, node, received, status, error, exit_code, sections)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_MISSING = "INSERT OR IGNORE INTO reports (run, node, received, status, error) VALUES (?, ?, ?, ?, ?)"
_UNUSED = """
    DELETE FROM sections WHERE id NOT IN (
        SELECT value FROM (SELECT DISTINCT sections FROM reports WHERE sections IS NOT NULL),
        json_each(sections))"""
_BUSY_SECONDS = 60.0
_CACHED_SECTIONS = 4000
#: Of zlib: 7 % more bytes than level 6, in little more than half of the time.
_LEVEL = 3
_CODE = pattern(r"\bexit code (\d{1,9})\b")
_CODES = range(-(1 << 31), 1 << 32)
_HINT = "`backends fleet run --keep DIR` makes such a folder"


@contextmanager
def opened(path: str, *, writes: bool = False, creates: bool = False) -> "Iterator[Folder]":
    """Open a folder. Raises BadInput for one that is missing, damaged, foreign or of a newer version."""
    file = os.path.join(path, FILE)
    check(path)
    with _errors(path, writes=creates):
        if creates:
            if os.path.lexists(path) and not os.path.isdir(path):
                raise BadInput(f"{path} is not a folder")
            os.makedirs(path, 0o700, exist_ok=True)
            with suppress(FileExistsError):  # it is private, and SQLite's journals have its permissions
                os.close(os.open(file, flags("O_CREAT", "O_EXCL", "O_RDWR", "O_NOFOLLOW"), 0o600))
        elif not os.path.lexists(file):
            raise BadInput(f"{path} is not a folder of kept reports", _HINT)
        if not stat.S_ISREG(os.lstat(file).st_mode):
            raise BadInput(f"{file} is not a regular file", "a link there could lead anywhere")
        uri = f"{Path(os.path.abspath(file)).as_uri()}?mode=rw"
        db = sqlite3.connect(
            uri, timeout=_BUSY_SECONDS, isolation_level="IMMEDIATE", check_same_thread=False, uri=True
        )
    with closing(db):
        folder = Folder(path, db)
        with _errors(path, writes=writes):
            db.text_factory = lambda data: data.decode(errors="replace")
            if creates and not db.execute("SELECT 1 FROM sqlite_master").fetchone():
                db.executescript(_TABLES)
            folder.check_version()
            db.execute(f"PRAGMA {'foreign_keys' if writes else 'query_only'} = 1")
            has_log = writes and not mount_of(file)
            if has_log:
                with suppress(sqlite3.OperationalError):  # another run has it open
                    db.execute("PRAGMA journal_mode = WAL")
                    db.execute("PRAGMA synchronous = NORMAL")
            if writes:
                db.execute(f"PRAGMA user_version = {VERSION}")  # it fails now rather than after a run
        try:
            yield folder
        finally:
            if has_log:  # unless others have the database open
                with suppress(sqlite3.Error):
                    db.execute("PRAGMA busy_timeout = 0")
                    db.execute("PRAGMA journal_mode = DELETE")


@contextmanager
def _errors(path: str, *, writes: bool = False) -> Iterator[None]:
    """Turn errors of files and of SQLite, and values that are not ours, into BadInput."""
    try:
        yield
    except BadInput:
        raise
    except (
        sqlite3.Error, zlib.error, msgspec.MsgspecError, OSError, ValueError, TypeError, OverflowError
    ) as error:  # fmt: skip
        why = getattr(error, "strerror", "") or why_not(error)
        if why in ("file is not a database", "database disk image is malformed"):
            hint = f"what is left: sqlite3 {os.path.join(path, FILE)} .recover"
            raise BadInput(f"{path} is damaged: {why}", hint) from None
        raise BadInput(f"{path} cannot be {'written' if writes else 'read'}: {why}") from None


class Answer(NamedTuple):
    """A node's answer in a run. report: its number. sections: empty without a report that can be used."""

    node: str
    run: int
    report: int
    status: str
    error: str
    sections: frozenset[int]


class Folder:
    """An open folder. Its methods raise BadInput for what cannot be read."""

    def __init__(self, path: str, db: sqlite3.Connection) -> None:
        self.path, self.db = path, db
        self.errors = partial(_errors, path)

    def check_version(self) -> None:
        """Raise BadInput for tables of others, or of a newer version."""
        if self.db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
            raise BadInput(f"{self.path} has no database of kept reports", _HINT)
        if (version := self.db.execute("PRAGMA user_version").fetchone()[0]) > VERSION:
            found = f"{self.path} has version {version} of the tables; this version reads {VERSION}"
            raise BadInput(found, "use the version of backends that wrote it")

    # ---- reading -----------------------------------------------------------------------------------

    def runs(self) -> list[Run]:
        """Return the runs, the oldest first."""
        with self.errors():
            runs = [msgspec.json.decode(text, type=Run) for (text,) in self.db.execute(_RUNS)]
            return [replace(run, expected=_names(run.expected)) for run in runs]

    def run(self, which: str = "") -> Run:
        """Return the run with a number, the newest that began on a day, or the newest of all.

        Raises BadInput.
        """
        runs = self.runs()
        for run in reversed(runs):
            day = time.strftime("%Y-%m-%d", time.localtime(run.started))
            if which in ("", str(run.number), day):
                return run
        if not runs:
            raise BadInput(f"{self.path} has no runs", "a run is kept from its first answer on")
        numbers = f"it has {runs[0].number} to {runs[-1].number}"
        raise BadInput(f"{self.path} has no run {which}", f"{numbers}; `backends fleet history` lists them")

    def last_of_ours(self) -> Run:
        """Return the newest run. Raises BadInput where another user could have written what it asks."""
        file = os.path.join(self.path, FILE)
        if hasattr(os, "geteuid") and os.stat(file).st_uid != os.geteuid():
            raise BadInput(f"{file} belongs to another user; the command in it is not run")
        return self.run()

    def envelopes(self, run: int) -> Iterator[Envelope]:
        """Yield what nodes answered in a run, as it arrived; without a lock between them."""
        with self.errors():
            numbers = self.db.execute("SELECT id FROM reports WHERE run = ? ORDER BY id", (run,)).fetchall()
        for number in numbers:
            with self.errors():
                for node, status, error, code, data in self.db.execute(_ENVELOPE, number).fetchall():
                    report = UNSET if data is None else Raw(_unpacked(data))
                    envelope = Envelope(
                        node=str(node), status=Status(status), error=str(error), exit_code=code, report=report
                    )
                    yield envelope

    def answers(self, runs: Sequence[int]) -> Iterator[Answer]:
        """Yield the answers in some runs: those of one node after another, each in the order of runs."""
        sections_of = cache(partial(msgspec.json.decode, type=frozenset[int]))
        with self.errors():
            for node, run, report, status, error, text in self.db.execute(_ANSWERS, (str([*runs]),)):
                sections = sections_of(text) if text else frozenset()
                yield Answer(fit_name(node), run, report, status, error, sections)

    def content(self, report: int) -> bytes:
        """Return a stored report."""
        with self.errors():
            query = "SELECT data FROM contents WHERE report = ?"
            return _unpacked(self.db.execute(query, (report,)).fetchone()[0])

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

    # ---- writing -----------------------------------------------------------------------------------

    def prune(self, runs: Sequence[int]) -> int:
        """Remove runs, and what only they used; return the number of removed reports."""
        count = "SELECT count(*) FROM contents"
        with self.errors(writes=True), self.db:
            before = self.db.execute(count).fetchone()[0]
            self.db.executemany("DELETE FROM runs WHERE id = ?", [(run,) for run in runs])
            self.db.execute(_UNUSED)
            return int(before - self.db.execute(count).fetchone()[0])


def _unpacked(data: bytes) -> bytes:
    """Return what was compressed. Raises zlib.error."""
    unpacker = zlib.decompressobj()
    text = unpacker.decompress(data, REPORT_LIMIT)
    if unpacker.unconsumed_tail or not unpacker.eof:
        raise zlib.error("a report is cut off, or larger than any")
    return text


def _names(expected: tuple[str, ...] | int | None) -> tuple[str, ...] | int | None:
    return tuple(map(fit_name, expected)) if isinstance(expected, tuple) else expected


class Keeper:
    """Adds the answers of a run to a folder. failure: why it had to stop. lost: the answers since then.

    run: the number of an earlier run to go on with, whose expected nodes are replaced. A new one is made with
    its first answer.
    """

    def __init__(
        self, folder: Folder, asked: Asked, expected: tuple[str, ...] | int | None, run: int | None = None
    ) -> None:
        self.failure = ""
        self.lost = 0
        self.run = run
        self._db = folder.db
        #: The numbers of stored sections, by probe and fingerprint.
        self._known: dict[tuple[str, str], int] = {}
        #: Of the row of the run, until it is written.
        self._fields: tuple[Any, ...] = (
            _json(asked),
            _json(expected),
            f"backends {__version__}",
            time.time(),
        )

    def add(self, node: str, envelope: Envelope, collection: Collection, *, is_new: bool) -> None:
        """Keep an envelope that the collection has just taken. is_new: it is the node's first report."""
        if not self.failure:
            with self._transaction():
                self._write(node, envelope, collection, is_new)
        self.lost += bool(self.failure)

    def finish(self, collection: Collection) -> None:
        """Note that every node had its time, and which of those that were expected sent nothing."""
        if self.run is None or self.failure:
            return
        now = time.time()
        missing = collection.all_silent().get(MISSING, ())
        with self._transaction():
            self._db.execute("UPDATE runs SET ended = ? WHERE id = ?", (now, self.run))
            rows = [(self.run, clean(node), now, *map(str, MISSING)) for node in missing]
            self._db.executemany(_MISSING, rows)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            with self._db:
                yield
        except sqlite3.Error as error:
            self.failure = str(error)

    def _write(self, node: str, envelope: Envelope, collection: Collection, is_new: bool) -> None:
        if self._fields:
            made = self._db.execute(_RUN, (self.run, *self._fields)).lastrowid
            self.run, self._fields = self.run or made, ()
        found = _CODE.search(envelope.error)
        code = int(found[1]) if found else envelope.exit_code
        code = None if code is None or code not in _CODES else code
        error = clean(collection.flagged.get(node) or envelope.error)
        if node in collection.nodes and not is_new:  # a failure after the report that counts, or another one
            if envelope.status is not Status.OK:
                change = "UPDATE reports SET error = ?, exit_code = ifnull(?, exit_code)"
                self._db.execute(f"{change} WHERE run = ? AND node = ?", (error, code, self.run, clean(node)))
            return
        newest = [collection.sections[number] for number in collection.latest] if is_new else []
        sections = _json(sorted(map(self._section, newest))) if is_new else None
        values = (self.run, clean(node), time.time(), str(envelope.status), error, code, sections)
        number = self._db.execute(_REPORT, values).lastrowid
        if isinstance(envelope.report, Raw):
            packed = zlib.compress(envelope.report, _LEVEL)
            self._db.execute("INSERT INTO contents VALUES (?, ?)", (number, packed))
        if collection.varying:
            change = "UPDATE runs SET varying = ? WHERE id = ?"
            self._db.execute(change, (_json([*map(clean, collection.varying)]), self.run))

    def _section(self, section: Section) -> int:
        """Return the number of a section, which is stored if it is new."""
        key = (section.probe, section.fingerprint)
        if key not in self._known:
            packed = zlib.compress(msgspec.json.encode(section.facts), _LEVEL)
            into = "INSERT OR IGNORE INTO sections (probe, fingerprint, facts) VALUES (?, ?, ?)"
            self._db.execute(into, (*key, packed))
            find = "SELECT id FROM sections WHERE probe = ? AND fingerprint = ?"
            self._known[key] = self._db.execute(find, key).fetchone()[0]
        return self._known[key]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
