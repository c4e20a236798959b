"""What the agent does with sales: plain functions that know nothing of runs and plans."""

import csv
from pathlib import Path

from milepost import Permanent


def find_regions(folder: str) -> list[str]:
    """Return the names of the regions that have reported, in order."""
    if not Path(folder).is_dir():
        raise NotADirectoryError(f"there is no folder {folder}")
    return sorted(path.stem for path in Path(folder).glob("*.csv"))


def read_sales(folder: str, region: str) -> dict[str, int]:
    """Return what a region has sold of each product. A file that is wrong stays wrong, so it is read once."""
    with Path(folder, f"{region}.csv").open(newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        sales: dict[str, int] = {}
        for row in rows:
            if not row["amount"].isdecimal():
                raise Permanent(f"{region}.csv, line {rows.line_num}: {row['amount']!r} is no amount")
            sales[row["product"]] = int(row["amount"])
    return sales


def best_seller(sales: dict[str, int]) -> str:
    return max(sales, key=lambda product: sales[product])


def add_up(sales: dict[str, dict[str, int]]) -> dict[str, int]:
    """Return the sum for each product over the steps that have read a region."""
    total: dict[str, int] = {}
    for region in sales.values():
        for product, amount in region.items():
            total[product] = total.get(product, 0) + amount
    return total


def write_report(total: dict[str, int], best: dict[str, str]) -> str:
    lines = [f"{product}: {amount}" for product, amount in sorted(total.items())]
    favourites = [f"{step.removeprefix('best-')} likes {product}" for step, product in best.items()]
    return "\n".join([f"From {len(best)} regions", *lines, *favourites]) + "\n"
