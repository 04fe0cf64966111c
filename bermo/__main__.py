"""`python -m bermo` and `accelerate launch -m bermo` are the command `bermo`."""

from bermo.cli import command

if __name__ == "__main__":
    command()
