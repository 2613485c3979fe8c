"""Library lines of this process: where they go while a session listens."""
