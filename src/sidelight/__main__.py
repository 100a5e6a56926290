"""``python -m sidelight``: the ``sidelight`` command where its script is not on the path."""

from sidelight.cli import main

if __name__ == "__main__":
    main()
