"""What a probe declares of its facts."""

from functools import cache

from mlbackends.model import registry
from mlbackends.model.records import Fact


@cache
def facts_of(probe: str) -> dict[str, Fact]:
    """Return the facts that a probe declares, by name; {} for one that is not here."""
    if probe not in registry.names("mlbackends_probes"):
        return {}
    return {
        fact.name: fact for fact in getattr(registry.load("mlbackends_probes", probe), "FACTS", ())
    }
