"""`python -m besselnet`: the command line."""

from besselnet.cli import main

if __name__ == "__main__":
    main()
