"""Lines of libraries in this very process: where they go while a session listens."""
