"""What spark-submit runs: the `weever` command, with the arguments behind this file's name."""

from weever_stream.cli import main

if __name__ == "__main__":
    main()
