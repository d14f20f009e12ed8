"""``softprune`` and ``python -m softprune``. The command is an extra: without it, say how to get it."""

import sys


def main() -> None:
    try:
        from softprune.cli import main as command
    except ModuleNotFoundError as error:
        sys.exit(f"Error: {error}. The command is an extra: pip install 'softprune[train]'.")
    command()


if __name__ == "__main__":
    main()
