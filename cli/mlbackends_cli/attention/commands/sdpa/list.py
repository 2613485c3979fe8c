"""List the attention backends: what each supports, and whether it can run here.

The conditions are the ones by which a backend refuses a problem, so the list cannot disagree with them.
Peers are backends of other projects, which `backends sdpa check --peers` runs.

Examples:
  backends sdpa list
  backends sdpa list --format json | jq '.backends[] | select(.unavailable_reasons == []).name'
  backends sdpa list --devices
"""

from mlbackends.base.errors import BadInput
from mlbackends.sdpa.listing import listing
from mlbackends_cli import exits, formats
from mlbackends_cli.attention import backends
from mlbackends_cli.attention.options import FORMAT, PYTHON
from mlbackends_cli.lazy import documented
from mlbackends_cli.options import option
from mlbackends_cli.output import write
from mlbackends_cli.terminal import page


@documented()
@option("--devices", "List the names that --device takes instead.")
@PYTHON
@FORMAT
def command(devices: bool, pythons: tuple[str, ...], form: str, output: str, color: str) -> int:
    style = page(color, output)
    if devices:
        if form != "table":
            raise BadInput(f"--devices has no format {form}; it is a table")
        write(backends.devices(style), output)
        return exits.YES

    own = {"table": backends.printed_list, "markdown": backends.markdown_list}
    write(formats.text_of(form, listing(pythons), style, **own), output)
    return exits.YES
