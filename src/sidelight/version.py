"""The version of Sidelight, in a module of its own so that nothing has to import the package root for it."""

__all__ = ["__version__"]

__version__ = "0.1.0"
