"""Print the JSON Schema of what the commands print.

RECORD is one of: report (`backends info --format json`), flags (`backends flags list --format json`),
outcome (`backends doctor --format json` and `backends audit`), difference (`backends diff --format json`),
devices (`backends explain device --format json`), sdpa-explain, sdpa-list, sdpa-check and sdpa-bench (the
commands of these names), fleet, fleet-facts and fleet-difference (`backends fleet` summarize, facts and
diff), envelope (what one node sends to them), top (`backends top --once --format json`), or policy (the TOML
that `backends audit --policy` reads, for editors that check it).

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
