"""What a site lets a run do, asked on its nodes. Standard library, Python 3.9."""
