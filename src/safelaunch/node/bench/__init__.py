"""How fast one node is: matrix products, memory, disks. Standard library, Python 3.9; torch only in a child."""
