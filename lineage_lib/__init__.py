"""The library behind the notebooks: readable, float64-clean, one room a module."""

__version__ = "0.1.0"
