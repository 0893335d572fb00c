"""Where the rooms of the house are on this disk."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOLUTIONS = ROOT / "solutions"
CHAPTERS = ROOT / "chapters"
WORK = ROOT / "work"
BOOK_HTML = ROOT / "_build" / "html"
