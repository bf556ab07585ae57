"""``python -m rollbook.cli``."""

from rollbook.cli.app import app

if __name__ == "__main__":
    app(prog_name="python -m rollbook.cli")
