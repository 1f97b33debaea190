"""`python -m momentum_transformer` is the `momentum` command."""

from .cli import main

if __name__ == "__main__":
    main()
