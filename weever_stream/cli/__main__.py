"""`python -m weever_stream.cli`: the `weever` command where no script is installed."""

from weever_stream.cli import main

if __name__ == "__main__":
    main()
