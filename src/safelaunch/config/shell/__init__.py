"""Shell texts read without running them: lines, called files, launchers inside."""
