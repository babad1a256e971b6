"""`python -m besselnet_lab`: the command line."""

from besselnet_lab.cli import main

if __name__ == "__main__":
    main()
