"""What `rota ingest` reads from: a file or standard input, decompressed, always read forwards.

1. The compression is known by the first bytes, never by the name: gzip, zip, lz4 frames, bzip2, xz, or none.
2. Positions are bytes of the decompressed stream, so a file may be compressed anew between two runs.
3. A source is named by its real path, a member of a zip file by path and member, or by --source.
4. Damage ends in `Refused` that tells how far the data was good; what came before it was handed out.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import lzma
import os
import pathlib
import zipfile
import zlib
from typing import IO, Any, cast

import click

from rota.cli.failures import Refused
from rota.cli.patience import STANDARD_INPUT, open_patiently
from rota.cli.text import printable

MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "gzip"),
    (b"PK\x03\x04", "zip"),
    (b"PK\x05\x06", "zip"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
)
HEAD_BYTES = 64 << 10
MAGIC_BYTES = max(len(magic) for magic, _ in MAGIC)
SUFFIXES = {"gzip": ".gz", "lz4": ".lz4", "bzip2": ".bz2", "xz": ".xz", "zip": ".zip"}
DAMAGE = (EOFError, OSError, RuntimeError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)


class Source:
    """A stream of decompressed bytes that knows where it is, in both measures."""

    def __init__(self, path: str, *, name: str | None = None, member: str | None = None) -> None:
        if path == STANDARD_INPUT and name is None:
            raise click.UsageError("Standard input has no name to remember it by; give --source NAME.")
        self.path = path
        self.raw = open_patiently(path)
        # Standard input may start in the middle of a file; that is where it begins for us.
        self.seekable = path != STANDARD_INPUT and self.raw.seekable()
        try:
            self.compression = recognised(self.raw, self.seekable)
            self.size = os.fstat(self.raw.fileno()).st_size if self.seekable else None
            self.stream, self.member = decompressed(self.raw, self.compression, path, member)
        except BaseException:
            self.close()
            raise
        self.position = 0
        self.head = b""  # the first bytes, as far as they have been read
        self.name = name or self.own_name()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; standard input itself stays open."""
        self.raw.close()

    def own_name(self) -> str:
        """Return the real path, with the member of a zip file behind it."""
        path = os.path.realpath(self.path)
        return path if self.member is None else f"{path}!{self.member}"

    @property
    def inner_name(self) -> str:
        """The file name without what tells the compression: its ending tells the format."""
        if self.member is not None:
            return self.member
        name = pathlib.PurePath(self.path).name
        return name.removesuffix(SUFFIXES.get(self.compression or "", ""))

    def progress(self) -> int:
        """Return how many bytes of the file have been read, compressed as they are."""
        return self.raw.tell() if self.seekable else self.position

    def read(self, size: int) -> bytes:
        """Return the next bytes, at most `size`, b"" at the end."""
        try:
            data = cast(bytes, self.stream.read1(size))
        except DAMAGE as error:
            if isinstance(error, OSError) and error.errno in (errno.EIO, errno.ESTALE):
                raise
            raise Refused(f"{self} is damaged or cut off after {self.position:,} bytes of data ({error})") from None
        if self.position == len(self.head) < HEAD_BYTES:
            self.head += data[: HEAD_BYTES - len(self.head)]
        self.position += len(data)
        return data

    def read_fully(self, size: int) -> bytes:
        """Return the next `size` bytes, fewer only at the end."""
        parts, missing = [], size
        while missing and (part := self.read(missing)):
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def skip_to(self, position: int) -> bool:
        """Go forwards; tell whether the source is that long."""
        # Not before the head is complete: it is kept for the digest.
        whole_head = self.position >= HEAD_BYTES
        if whole_head and self.compression is None and self.size is not None and position <= self.size:
            self.raw.seek(position)
            self.position = position
        while self.position < position:
            if not self.read(min(1 << 20, position - self.position)):
                return False
        return True

    def __str__(self) -> str:
        name = "standard input" if self.path == STANDARD_INPUT else printable(os.fsencode(self.path))
        return name if self.member is None else f"{name} ({printable(self.member)})"


def recognised(raw: io.BufferedReader, seekable: bool) -> str | None:
    """Return the compression that the first bytes tell, leaving them unread."""
    if seekable:
        start = raw.read(MAGIC_BYTES)
        raw.seek(0)
    else:
        start = raw.peek(MAGIC_BYTES)
    return next((kind for magic, kind in MAGIC if start.startswith(magic)), None)


def decompressed(raw: io.BufferedReader, kind: str | None, path: str, member: str | None) -> tuple[Any, str | None]:
    """Return the stream to read, and the member it is when the file is a zip archive."""
    if member is not None and kind != "zip":
        raise click.UsageError(f"--member is for zip files; {printable(os.fsencode(path))} is none.")
    if kind == "zip":
        return zip_member(raw, path, member)
    if kind == "gzip":
        return gzip.GzipFile(fileobj=raw), None
    if kind == "bzip2":
        return bz2.BZ2File(raw), None
    if kind == "xz":
        return lzma.LZMAFile(raw), None
    if kind == "lz4":
        import lz4.frame

        return lz4.frame.LZ4FrameFile(raw), None
    return raw, None


def zip_member(raw: io.BufferedReader, path: str, member: str | None) -> tuple[IO[bytes], str]:
    """Return the stream of the only member, or of the one that was asked for, and its name."""
    if path == STANDARD_INPUT or not raw.seekable():
        raise click.UsageError("A zip file cannot come through a pipe: its list of members stands at the end.")
    try:
        archive = zipfile.ZipFile(raw)
    except zipfile.BadZipFile as error:
        raise Refused(f"{printable(os.fsencode(path))} is a damaged zip file ({error})") from None
    names = [info.filename for info in archive.infolist() if not info.is_dir()]
    if member is None and len(names) == 1:
        member = names[0]
    if member is None or member not in names:
        wanted = "has several members" if member is None else f"has no member {printable(member)}"
        listed = ", ".join(printable(name) for name in names[:20]) or "none"
        raise click.UsageError(f"{printable(os.fsencode(path))} {wanted}; choose with --member: {listed}.")
    try:
        return archive.open(member), member
    except (RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise Refused(f"{printable(os.fsencode(path))}: {error}") from None
