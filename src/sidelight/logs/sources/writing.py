"""Tables written to a file of the kind that its name says."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidelight.errors import InputError
from sidelight.files import file_to_replace

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KINDS_WRITTEN", "TableWriter", "kind_written", "write_tables"]

#: ending of a file's name → the kind of file
KINDS_WRITTEN = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".arrow": "arrow",
    ".feather": "arrow",
}


def kind_written(path: str | os.PathLike[str]) -> str:
    """The kind of file that a name asks for: Parquet, CSV or Arrow; Parquet where it has no ending.

    Raises:
        InputError: it ends like something else.
    """
    suffix = Path(path).suffix.lower()
    if suffix and suffix not in KINDS_WRITTEN:
        raise InputError(
            f"{path} ends in {suffix}, and what is written is Parquet, CSV or Arrow: call it .parquet, .csv or .arrow."
        )
    return KINDS_WRITTEN.get(suffix, "parquet")


class TableWriter:
    """Writes tables of one schema one after the other.

    Args:
        path: where to write.
        kind: ``"parquet"``, ``"csv"`` or ``"arrow"``.
        schema: of all tables.
    """

    def __init__(self, path: str | os.PathLike[str], kind: str, schema: pa.Schema) -> None:
        import pyarrow as pa
        import pyarrow.csv as pacsv
        import pyarrow.parquet as pq

        target = os.fspath(path)
        self._writer: Any
        if kind == "csv":
            self._writer = pacsv.CSVWriter(target, schema)
        elif kind == "arrow":
            self._writer = pa.ipc.new_file(target, schema)
        else:
            self._writer = pq.ParquetWriter(target, schema, compression="zstd")

    def write(self, table: pa.Table) -> None:
        """Write the rows of a table."""
        self._writer.write_table(table)

    def close(self) -> None:
        """Complete the file."""
        self._writer.close()

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write_tables(path: Path, kind: str, tables: Iterable[pa.Table]) -> int | None:
    """Write tables of one schema to one file, whole or not at all; a table is asked for once those before are written.

    A symbolic link stays: the file it points to is replaced.

    Returns:
        How many rows were written; None if there was no table, and so no file was written.

    Raises:
        InputError: ``path`` is a folder, a device or a pipe.
    """
    path = file_to_replace(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.part")
    writer: TableWriter | None = None
    rows = 0
    try:
        for table in tables:
            writer = writer or TableWriter(temporary, kind, table.schema)
            writer.write(table)
            rows += table.num_rows
        if writer is None:
            return None
        writer.close()
        os.replace(temporary, path)
    finally:
        if writer is not None:
            writer.close()
        temporary.unlink(missing_ok=True)
    return rows
