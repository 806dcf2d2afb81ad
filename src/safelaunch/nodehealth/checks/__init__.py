"""What many nodes say of themselves (node.checks): read, compared, judged, shown."""
