"""`python -m epass` is `epass`, as torchrun wants it."""

from .cli import main

main()
