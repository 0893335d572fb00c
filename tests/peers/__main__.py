"""Prints the table of differences and writes it: ``python -m tests.peers``."""

import torch

from tests.peers import table

COLUMNS = ("output", "state", "gradient", "shipped", "strong", "reset")


def show(x: float | str | None) -> str:
    return "–" if x is None else x if isinstance(x, str) else f"{x:.1e}"


def main() -> None:
    torch.set_num_threads(1)
    rows = [table.row(peer) for peer in table.PEERS]
    width = max(len(row["peer"]) for row in rows) + 2
    print(f"{'rule':<29}{'peer':<{width}}{'version':<12}" + "".join(f"{c:>9}" for c in COLUMNS))
    for row in rows:
        print(
            f"{row['rule']:<29}{row['peer']:<{width}}{row['version']:<12}"
            + "".join(f"{show(row[c]):>9}" for c in COLUMNS)
        )
    table.write(rows)
    print(f"written to {table.PATH.relative_to(table.PATH.parents[2])}")


if __name__ == "__main__":
    main()
