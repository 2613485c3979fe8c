"""What is done to home-made environments: one function for each recipe, and the plan of all of them.

A recipe installs its package in an environment and changes something, by chance but from the seed of the
environment's name. What comes of it is for the loader to say: nothing here states what must be found.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import tomllib
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from environments import Environment, Source, Sources

Recipe = Callable[["Environment", str], None]
RECIPES: dict[str, tuple[Recipe, str, int]] = {}
POOLS: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "pools.toml").read_text())


def recipe(pool: str, count: int) -> Callable[[Recipe], Recipe]:
    """Register a recipe, for so many packages of a pool."""

    def registered(function: Recipe) -> Recipe:
        RECIPES[function.__name__] = function, pool, count
        return function

    return registered


def PLAN(sources: Sources) -> list[tuple[str, Recipe, str]]:  # noqa: N802
    """Return the name, recipe and package of each environment, in an order that mixes them."""
    rows = []
    for name, (function, pool, count) in RECIPES.items():
        there = [package for package in POOLS[pool] if package in sources.by_name or pool == "none"]
        there.sort(key=lambda package: zlib.crc32(f"{name}/{package}".encode()))
        turns = (
            [(package, i // len(there)) for i, package in enumerate(there * count)][:count] if there else []
        )
        rows += [
            (f"{name}/{package}" + f"-{turn}" * bool(turn), function, package) for package, turn in turns
        ]
    return sorted(rows, key=lambda row: zlib.crc32(row[0].encode()))


def put(environment: Environment, package: str, *, without: tuple[str, ...] = ()) -> None:
    """Install a package and what it requires, and ask about the package."""
    for name in environment.sources.closure([package], without):
        environment.install(environment.sources.by_name[name][0])
    environment.subjects.append(package)


def run(*command: str | Path) -> None:
    """Run a compiler."""
    subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True)


def compiled(path: Path, code: str, *flags: str) -> Path:
    """Compile a shared object."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.parent / f"{path.name}.c"
    source.write_text(code)
    run("gcc", "-shared", "-fPIC", "-o", path, source, *flags)
    source.unlink()
    return path


class Elf:
    """A 64-bit shared object whose dynamic section is edited in place."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        start, size, count = (*struct.unpack_from("<Q", data, 32), *struct.unpack_from("<HH", data, 54))
        self.segments = [struct.unpack_from("<IIQQQQQQ", data, start + size * i) for i in range(count)]
        self.headers = [start + size * i for i in range(count)]
        at, end = next((s[2], s[2] + s[5]) for s in self.segments if s[0] == 2)
        self.entries = [(p, *struct.unpack_from("<QQ", data, p)) for p in range(at, end, 16)]
        self.strings = self.offset(self.value(5))

    def offset(self, address: int) -> int:
        """Return where an address is in the file."""
        loaded = [s for s in self.segments if s[0] == 1 and s[3] <= address < s[3] + s[5]]
        return int(loaded[0][2] + address - loaded[0][3])

    def value(self, tag: int) -> int:
        """Return the value of a tag, 0 without it."""
        return next((value for _, t, value in self.entries if t == tag), 0)

    def tag(self, old: int, new: int, value: int | None = None) -> bool:
        """Give the first entry with a tag another one; return whether there is one."""
        for at, tag, before in self.entries:
            if tag == old:
                struct.pack_into("<QQ", self.data, at, new, before if value is None else value)
                return True
        return False

    def text(self, tag: int, new: Callable[[bytes], bytes], which: int = 0) -> None:
        """Change the string of a tag to one that is as long or shorter."""
        values = [value for _, t, value in self.entries if t == tag]
        if values:
            self.string(values[which % len(values)], new)

    def string(self, position: int, new: Callable[[bytes], bytes]) -> None:
        """Change a string of the dynamic string table."""
        at = self.strings + position
        end = self.data.index(b"\0", at)
        self.data[at:end] = new(bytes(self.data[at:end])).ljust(end - at, b"\0")[: end - at]

    def version(self, choose: int) -> None:
        """Make one of the versions that it needs one that nothing has."""
        if not self.value(0x6FFFFFFE):
            return
        at, places = self.offset(self.value(0x6FFFFFFE)), []
        while True:
            _, count, _, first, following = struct.unpack_from("<HHIII", self.data, at)
            aux = at + first
            for _ in range(count):
                _, _, _, name, step = struct.unpack_from("<IHHII", self.data, aux)
                places.append((aux, name))
                aux += step
            if not following:
                break
            at += following
        aux, name = places[choose % len(places)]
        self.string(name, lambda text: text[:-1] + b"~")
        begin = self.strings + name
        value = 0
        for byte in self.data[begin : self.data.index(b"\0", begin)]:
            value = (value << 4) + byte
            value = (value ^ ((value & 0xF0000000) >> 24)) & 0x0FFFFFFF
        struct.pack_into("<I", self.data, aux, value)

    def executable_stack(self) -> None:
        """Ask for an executable stack."""
        for at, segment in zip(self.headers, self.segments, strict=True):
            if segment[0] == 0x6474E551:
                struct.pack_into("<I", self.data, at + 4, 7)


def edited(environment: Environment, path: Path, edit: Callable[[Elf], object]) -> None:
    """Replace a shared object by an edited copy."""
    elf = Elf(path.read_bytes())
    edit(elf)
    environment.replace(path, bytes(elf.data))


class NotApplicable(Exception):
    """The package has nothing that the recipe could change."""


def one(environment: Environment, paths: list[Path]) -> Path:
    """Return one of some files. Raises NotApplicable without any."""
    if not paths:
        raise NotApplicable
    path: Path = environment.random.choice(paths)
    return path


def any_object(environment: Environment, package: str) -> Path:
    """Return a library of a package as often as an extension module, whichever it has."""
    kinds = [kind for kind in (environment.libraries(package), environment.modules(package)) if kind]
    return one(environment, environment.random.choice(kinds) if kinds else [])


# ---- as they are ------------------------------------------------------------------------------------


@recipe("light", 30)
def intact(environment: Environment, package: str) -> None:
    put(environment, package)


@recipe("heavy", 9)
def intact_heavy(environment: Environment, package: str) -> None:
    put(environment, package)


# ---- files that are gone or are others ----------------------------------------------------------------


@recipe("vendored", 18)
def library_removed(environment: Environment, package: str) -> None:
    put(environment, package)
    one(environment, environment.libraries(package) or environment.modules(package)).unlink()


@recipe("light", 14)
def module_removed(environment: Environment, package: str) -> None:
    put(environment, package)
    one(environment, environment.modules(package) or environment.shared(package)).unlink()


@recipe("light", 16)
def truncated(environment: Environment, package: str) -> None:
    put(environment, package)
    path = any_object(environment, package)
    data = path.read_bytes()
    kept = environment.random.choice(
        [40, 700, len(data) // 3, len(data) // 2, len(data) - 4096, len(data) - 9]
    )
    environment.replace(path, data[:kept])


@recipe("light", 14)
def other_content(environment: Environment, package: str) -> None:
    put(environment, package)
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 3\n"
    kinds = [
        b"",
        b"\0" * 5000,
        pointer,
        b"INPUT(libm.so.6)\n",
        environment.random.randbytes(9000),
        b"\x7fELF" + b"\xff" * 300,
    ]
    environment.replace(any_object(environment, package), environment.random.choice(kinds))


@recipe("light", 10)
def renamed(environment: Environment, package: str) -> None:
    put(environment, package)
    path = any_object(environment, package)
    path.rename(path.with_name(f"{path.name}.bak"))


@recipe("vendored", 10)
def swapped(environment: Environment, package: str) -> None:
    put(environment, package)
    shared = environment.shared(package)
    path, other = one(environment, environment.libraries(package) or shared), one(environment, shared)
    environment.replace(path, other.read_bytes())


@recipe("vendored", 8)
def folder_or_dangling(environment: Environment, package: str) -> None:
    put(environment, package)
    path = any_object(environment, package)
    path.unlink()
    if environment.random.random() < 0.5:
        path.mkdir()
    else:
        path.symlink_to("/nowhere/gone.so")


@recipe("vendored", 8)
def moved_behind_a_link(environment: Environment, package: str) -> None:
    put(environment, package)
    path = any_object(environment, package)
    store = environment.root / "store"
    store.mkdir()
    path.rename(store / path.name)
    path.symlink_to(os.path.relpath(store / path.name, path.parent))


@recipe("light", 8)
def folder_behind_a_link(environment: Environment, package: str) -> None:
    put(environment, package)
    environment.site.rename(environment.root / "elsewhere")
    environment.site.symlink_to(environment.root / "elsewhere")


def of_another(environment: Environment, kind: str, package: str) -> Source:
    """Return a package for another machine or Python. Raises NotApplicable where no wheel of it is there."""
    source = environment.sources.others.get(kind, {}).get(package)
    if source is None:
        raise NotApplicable
    return source


@recipe("aarch64", 10)
def other_architecture(environment: Environment, package: str) -> None:
    put(environment, package)
    foreign = of_another(environment, "aarch64", package)
    files = [file for file in foreign.files if file.endswith(".so")]
    for path in environment.modules(package):
        stem = path.name.partition(".")[0]
        for file in files:
            same = (
                os.path.dirname(environment.site / file) == str(path.parent)
                and os.path.basename(file).partition(".")[0] == stem
            )
            if same and environment.random.random() < 0.7:
                environment.replace(path, (foreign.folder / file).read_bytes())


@recipe("cp312", 8)
def other_python(environment: Environment, package: str) -> None:
    put(environment, package)
    for path in [environment.site / file for file in environment.sources.by_name[package][0].files]:
        path.unlink(missing_ok=True)
    environment.install(of_another(environment, "cp312", package))


@recipe("light", 10)
def python_file_removed(environment: Environment, package: str) -> None:
    put(environment, package)
    files = [
        f for f in environment.sources.by_name[package][0].files if f.endswith(".py") and "test" not in f
    ]
    top = [f for f in files if f.count("/") == 1]
    (environment.site / environment.random.choice(top or files)).unlink()


@recipe("light", 6)
def no_record(environment: Environment, package: str) -> None:
    put(environment, package)
    for record in environment.site.glob(f"{package.replace('-', '_')}-*.dist-info/RECORD"):
        record.unlink()
    if environment.libraries(package):
        one(environment, environment.libraries(package)).unlink()


# ---- requirements and releases ------------------------------------------------------------------------


@recipe("numpy", 12)
def no_numpy(environment: Environment, package: str) -> None:
    put(environment, package, without=("numpy",))


@recipe("numpy", 8)
def numpy_broken(environment: Environment, package: str) -> None:
    put(environment, package)
    one(environment, environment.libraries("numpy") + environment.modules("numpy")[:2]).unlink()


@recipe("torch", 4)
def torch_broken(environment: Environment, package: str) -> None:
    put(environment, package)
    path = one(environment, environment.libraries("torch"))
    if environment.random.random() < 0.7:
        path.unlink()
    else:
        environment.replace(path, path.read_bytes()[:5000])


@recipe("torch", 3)
def torch_of_another_release(environment: Environment, package: str) -> None:
    versions = environment.sources.by_name
    put(environment, package)
    for file in versions[package][0].files:
        (environment.site / file).unlink(missing_ok=True)
    environment.install(environment.random.choice(versions[package][1:] or versions[package]))


# ---- edited headers -------------------------------------------------------------------------------------


@recipe("vendored", 8)
def no_search_path(environment: Environment, package: str) -> None:
    put(environment, package)
    for path in environment.modules(package):
        edited(environment, path, lambda elf: elf.tag(29, 0x6FFFF123) or elf.tag(15, 0x6FFFF123))


@recipe("vendored", 8)
def rpath_for_runpath(environment: Environment, package: str) -> None:
    put(environment, package)
    swap = lambda elf: elf.tag(29, 15) or elf.tag(15, 29)  # noqa: E731
    for path in environment.shared(package):
        if environment.random.random() < 0.6:
            edited(environment, path, swap)
    with_library(environment, package)


@recipe("light", 10)
def version_missing(environment: Environment, package: str) -> None:
    put(environment, package)
    choose = environment.random.randrange(50)
    edited(environment, any_object(environment, package), lambda elf: elf.version(choose))


@recipe("vendored", 8)
def needed_renamed(environment: Environment, package: str) -> None:
    put(environment, package)
    choose = environment.random.randrange(50)
    edited(
        environment,
        any_object(environment, package),
        lambda elf: elf.text(1, lambda name: name[:-1] + b"~", choose),
    )


@recipe("vendored", 6)
def soname_changed(environment: Environment, package: str) -> None:
    put(environment, package)
    for path in environment.libraries(package):
        if environment.random.random() < 0.5:
            edited(environment, path, lambda elf: elf.text(14, lambda name: name[:-2] + b"~9"))


@recipe("light", 5)
def executable_stack(environment: Environment, package: str) -> None:
    put(environment, package)
    edited(environment, any_object(environment, package), Elf.executable_stack)


@recipe("vendored", 5)
def no_default_folders(environment: Environment, package: str) -> None:
    put(environment, package)
    for path in environment.modules(package):
        edited(
            environment,
            path,
            lambda elf: elf.tag(0x6FFFFFFB, 0x6FFFFFFB, 0x801) or elf.tag(30, 0x6FFFFFFB, 0x801),
        )


# ---- variables and folders ----------------------------------------------------------------------------

STUB = "int of_a_stub(void) { return 1; }"


def with_library(environment: Environment, package: str) -> None:
    """Put copies or stubs of libraries into folders of LD_LIBRARY_PATH."""
    folder = environment.root / "ldpath"
    folder.mkdir(exist_ok=True)
    names = ["libstdc++.so.6", "libgomp.so.1", "libgcc_s.so.1", "libz.so.1", "libcudart.so.12", "libm.so.6"]
    names += [path.name for path in environment.libraries(package)[:30]]
    for name in environment.random.sample(names, 2):
        there = [path for path in environment.libraries(package) if path.name == name]
        system = Path("/usr/lib/x86_64-linux-gnu") / name
        if environment.random.random() < 0.4 and (there or system.exists()):
            shutil.copy((there or [system])[0], folder / name)
        else:
            compiled(folder / name, STUB, f"-Wl,-soname,{name}")
    environment.variables["LD_LIBRARY_PATH"] = environment.random.choice(
        [f"{folder}", f"{folder}:", f":/nowhere:{folder}/"]
    )


@recipe("light", 16)
def stale_library_path(environment: Environment, package: str) -> None:
    put(environment, package)
    with_library(environment, package)


@recipe("heavy", 4)
def stale_library_path_heavy(environment: Environment, package: str) -> None:
    stale_library_path(environment, package)


@recipe("vendored", 6)
def foreign_in_library_path(environment: Environment, package: str) -> None:
    put(environment, package)
    folder = environment.root / "ldpath"
    for path in environment.libraries(package)[:10]:
        folder.mkdir(exist_ok=True)
        header = bytearray(path.read_bytes())
        if environment.random.random() < 0.5:
            header[18:20] = b"\xb7\0"
        environment.replace(folder / path.name, bytes(header))
    environment.variables["LD_LIBRARY_PATH"] = str(folder)


@recipe("light", 8)
def preloaded(environment: Environment, package: str) -> None:
    put(environment, package)
    name = environment.random.choice(["libstdc++.so.6", "libz.so.1", "libpreload.so", "libgone.so"])
    path = environment.root / "pre" / name
    if name != "libgone.so":
        compiled(path, STUB, f"-Wl,-soname,{name}")
    environment.variables["LD_PRELOAD"] = environment.random.choice(
        [str(path), f"{path}:/lib/x86_64-linux-gnu/libm.so.6"]
    )


@recipe("vendored", 8)
def hwcaps(environment: Environment, package: str) -> None:
    put(environment, package)
    for path in environment.libraries(package)[:5]:
        level = environment.random.choice(["x86-64-v2", "x86-64-v3", "x86-64-v4"])
        target = path.parent / "glibc-hwcaps" / level / path.name
        if environment.random.random() < 0.5:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
        else:
            compiled(target, STUB, f"-Wl,-soname,{path.name}")


def conda_python(environment: Environment, *flags: str) -> None:
    """Give the environment a program of its own, as conda's: it finds libraries in ../lib by its RPATH."""
    source = environment.root / "python.c"
    source.write_text(
        "int Py_BytesMain(int, char **); int main(int c, char **v) { return Py_BytesMain(c, v); }"
    )
    library = next((environment.base.parent.parent / "lib").glob("libpython3.1?.so.1.0"))
    (environment.root / "lib" / library.name).symlink_to(library)
    environment.python.unlink()
    run("gcc", "-o", environment.python, source, library, *flags)


@recipe("light", 14)
def conda_prefix(environment: Environment, package: str) -> None:
    put(environment, package)
    tags = environment.random.choice(["--disable-new-dtags", "--enable-new-dtags"])
    conda_python(environment, f"-Wl,{tags},-rpath,$ORIGIN/../lib")
    for name in environment.random.sample(
        ["libstdc++.so.6", "libgcc_s.so.1", "libz.so.1", "libgomp.so.1"], 3
    ):
        target = environment.root / "lib" / name
        if environment.random.random() < 0.6:
            shutil.copy(f"/usr/lib/x86_64-linux-gnu/{name}", target)
        else:
            compiled(target, STUB, f"-Wl,-soname,{name}")


@recipe("light", 6)
def second_copy_first(environment: Environment, package: str) -> None:
    put(environment, package)
    folder = environment.root / "first"
    environment.install(environment.sources.by_name[package][0], folder=folder)
    environment.variables["PYTHONPATH"] = str(folder)
    there = [folder / path.relative_to(environment.site) for path in environment.shared(package)]
    one(environment, there).unlink()


# ---- compiled here ------------------------------------------------------------------------------------


MODULE = """
static struct { long count; void *of[4]; const char *name, *doc; long size; void *rest[5]; } d = {
    1, {0}, "_module", 0, -1, {0}};
void *PyModule_Create2(void *, int);
void *PyInit__module(void) { return PyModule_Create2(&d, 1013); }
"""


@recipe("none", 30)
def compiled_here(environment: Environment, _: str) -> None:
    """Compile a module on top of small libraries, each of which is found, or missed, in its own way."""
    chance, folder = environment.random, environment.site / "stubs"
    folder.mkdir()
    names = [
        f"lib{word}.so.1" for word in chance.sample(["alpha", "beta", "gamma", "delta", "eta", "iota"], 5)
    ]
    places = [folder / "libs", environment.root / "lib", environment.root / "ldpath", folder / "other"]
    search = [
        "$ORIGIN",
        "$ORIGIN/libs",
        "$ORIGIN/../libs",
        "$ORIGIN/other",
        "$ORIGIN/../../../..",
        "${ORIGIN}/../other",
        "",
        "/nowhere",
    ]
    made: dict[str, Path] = {}
    for name in [*names, "_module.so"]:
        symbol = re.sub(r"\W", "_", name)
        needs = chance.sample(list(made), min(len(made), chance.randrange(4))) if made else []
        code, flags = f"int f_{symbol}(void) {{ return 0; }}\n", []
        for need in needs:
            weak = "__attribute__((weak)) " * (chance.random() < 0.3)
            called = re.sub(r"\W", "_", need)
            code += f"{weak}extern int f_{called}(void);\n"
            code += f"void *use_{symbol}_{len(code)}(void) {{ return (void *)f_{called}; }}\n"
            flags += [str(made[need])] * (chance.random() < 0.9)
        if name == "_module.so":
            code += MODULE
        path = folder / name if name == "_module.so" else chance.choice(places) / name
        if chance.random() < 0.3 and name in names:
            script = environment.root / f"{name}.map"
            script.write_text(f"V_1 {{ global: f_*; }}; V_{chance.randrange(2, 4)} {{ global: g_*; }};")
            flags.append(f"-Wl,--version-script={script}")
        tags = chance.choice(["--disable-new-dtags", "--enable-new-dtags"])
        if chance.random() < 0.8:
            flags.append(f"-Wl,{tags},-rpath," + ":".join(chance.sample(search, 3)))
        flags += ["-Wl,-z,nodefaultlib"] * (chance.random() < 0.1) + ["-Wl,--hash-style=sysv"] * (
            chance.random() < 0.2
        )
        flags += [f"-Wl,-soname,{name}"] * (name in names and chance.random() < 0.85)
        made[name] = compiled(path, code, "-Wl,--no-as-needed", *flags)
    for name in chance.sample(names, 2):
        match chance.choice(["keep", "gone", "rebuilt", "link", "keep", "short"]):
            case "gone":
                made[name].unlink()
            case "rebuilt":
                compiled(made[name], STUB, *([f"-Wl,-soname,{name}"] if chance.random() < 0.5 else []))
            case "link":
                made[name].rename(environment.root / name)
                made[name].symlink_to(environment.root / name)
            case "short":
                environment.replace(made[name], made[name].read_bytes()[: chance.randrange(10, 9000)])
    (folder / "__init__.py").write_text("from stubs import _module\n")
    info = environment.site / "stubs-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stubs\nVersion: 1\n")
    (info / "RECORD").write_text("stubs/__init__.py,,\nstubs/_module.so,,\n")
    if chance.random() < 0.6:
        environment.variables["LD_LIBRARY_PATH"] = chance.choice(
            [f"{places[2]}", f"/nowhere::{places[2]}", f"{places[2]};{places[1]}"]
        )
    if chance.random() < 0.3:
        conda_python(environment, "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib")
    environment.subjects.append("stubs")
