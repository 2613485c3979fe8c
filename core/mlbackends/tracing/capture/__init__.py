"""Running a command with its libraries' tracing on."""
