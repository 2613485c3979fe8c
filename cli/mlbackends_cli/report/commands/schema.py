"""Print the JSON Schema of what the commands print.

RECORD is report: what `backends info --format json` prints, flags: what `backends flags list --format json`
prints, outcome: what `backends doctor --format json` and `backends audit` print, difference: what `backends
diff --format json` prints, devices: what `backends explain device --format json` prints, sdpa-explain,
sdpa-list, sdpa-check and sdpa-bench: what the commands of these names print, fleet, fleet-facts and
fleet-difference: what `backends fleet` summarize, facts and diff print with --format json, envelope: what
one node says to them, top: what `backends top --once --format json` prints, or policy: what `backends audit
--policy` reads, for editors that check TOML.
The dialect is 2020-12. Each field of a report has an x-role: fact, metric, identity or volatile.
Within a major version of the schema, which is the number after the slash in "backends.report/1",
fields and facts are only added.

Examples:
  backends schema report > report.schema.json
  backends info --format json | check-jsonschema --schemafile report.schema.json -
"""

import click

from mlbackends_cli.lazy import documented
from mlbackends_cli.options import OUTPUT
from mlbackends_cli.output import indented, write
from mlbackends_cli.report.schemas import SCHEMAS


@documented()
@click.argument("record", type=click.Choice(list(SCHEMAS)))
@OUTPUT
def command(record: str, output: str) -> None:
    write(indented(SCHEMAS[record]()), output)
