"""``python -m app serve``: the command line without an installed script."""

from app.cli import main

if __name__ == "__main__":
    main()
