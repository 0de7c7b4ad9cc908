"""`python -m prood`, the form that torchrun starts."""

from prood.cli import main

if __name__ == "__main__":
    main()
