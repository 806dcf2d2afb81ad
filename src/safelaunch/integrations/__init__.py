"""safelaunch inside other people's tools. Each package needs that tool, and nothing else of safelaunch imports it."""
