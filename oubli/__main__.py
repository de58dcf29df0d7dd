"""``python -m oubli serve``: the command line without an installed script."""

from oubli.app.cli.main import main

if __name__ == "__main__":
    main()
