"""`tidemill export`: write the files with which Tidemill is operated."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from tidemill.cli.exit_codes import exit_on_error
from tidemill.cli.export.export_files import read_files, write_files
from tidemill.cli.output import Format, Output, print_text, show_rows
from tidemill.kernel.errors import RequestError
from tidemill.kernel.version import VERSION

app = typer.Typer(help="Write files for Docker, Compose, systemd, Helm and Grafana.", no_args_is_help=True)

STANDARD_OUTPUT = "-"
IMAGE_NAME = re.compile(r"[a-z0-9][a-z0-9.:/_-]*[a-z0-9]")

ToOption = Annotated[str, typer.Option("--to", metavar="DIR", help="The folder to write to, or - for standard output.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace files that exist and differ.")]


def _check_image(name: str) -> str:
    if not IMAGE_NAME.fullmatch(name) or ":" in name.rpartition("/")[2]:
        raise typer.BadParameter(f"'{name}' is not the name of an image: write it like registry.example.com/tidemill")
    return name


ImageOption = Annotated[
    str, typer.Option("--image", metavar="NAME", help="The name of your image, without a tag.", callback=_check_image)
]


def _check_executable(path: Path) -> Path:
    if not path.is_absolute():
        raise typer.BadParameter(f"'{path}' is relative: systemd needs the whole path, such as {path.absolute()}")
    return path


ExecutableOption = Annotated[
    Path,
    typer.Option("--executable", metavar="PATH", help="The installed `tidemill`.", callback=_check_executable),
]


@app.command()
def docker(to: ToOption = ".", force: ForceOption = False, output: Output = Format.TABLE) -> None:
    """Write a Dockerfile: an image with this version of Tidemill, for servers and workers.

    Example: tidemill export docker --to - | docker build --tag tidemill -
    """
    _export("docker", to, force, output, next_step="docker build --tag tidemill:{version} {to}")


@app.command()
def compose(to: ToOption = ".", force: ForceOption = False, output: Output = Format.TABLE) -> None:
    """Write a Compose file: a server and a worker with PostgreSQL, and the Dockerfile of their image.

    Example: tidemill export compose --to tidemill
    """
    next_step = "make .env as the first lines of {to}/compose.yaml say, then docker compose up --build --detach"
    _export("docker compose", to, force, output, next_step=next_step)


@app.command()
def systemd(
    to: ToOption = ".",
    executable: ExecutableOption = Path("/opt/tidemill/bin/tidemill"),
    force: ForceOption = False,
    output: Output = Format.TABLE,
) -> None:
    """Write systemd units: tidemill.service for a server, and tidemill-worker@.service for any number of workers.

    Example: sudo tidemill export systemd --to /etc/systemd/system
    """
    next_step = "systemctl daemon-reload && systemctl enable --now tidemill"
    _export("systemd", to, force, output, next_step=next_step, EXECUTABLE=str(executable))


@app.command()
def helm(
    to: ToOption = ".", image: ImageOption = "tidemill", force: ForceOption = False, output: Output = Format.TABLE
) -> None:
    """Write a Helm chart: servers and workers on Kubernetes, with your own PostgreSQL.

    Example: tidemill export helm --to deploy --image registry.example.com/tidemill
    """
    _export("helm", to, force, output, IMAGE=image, next_step="helm install tidemill {to}/tidemill --values VALUES")


@app.command()
def grafana(to: ToOption = ".", force: ForceOption = False, output: Output = Format.TABLE) -> None:
    """Write a Grafana dashboard over the metrics of servers, to import or to provision.

    Example: tidemill export grafana --to /var/lib/grafana/dashboards
    """
    _export("grafana", to, force, output, next_step="in Grafana: Dashboards, New, Import")


@app.command()
def prometheus(to: ToOption = ".", force: ForceOption = False, output: Output = Format.TABLE) -> None:
    """Write alert rules for Prometheus: no leader, failing runs, reactors that are not live, dead letters.

    Example: tidemill export prometheus --to /etc/prometheus/rules
    """
    _export("prometheus", to, force, output, next_step="name the file in rule_files of prometheus.yml")


def _export(target: str, to: str, force: bool, output: Format, *, next_step: str, **words: str) -> None:
    """Write the files of a target, or of several, and show what has changed."""
    files = [file for one in target.split() for file in read_files(one, {"VERSION": VERSION, **words})]
    with exit_on_error():
        if to == STANDARD_OUTPUT:
            if len(files) > 1:
                message = f"`tidemill export {target.split()[-1]}` writes {len(files)} files: name a folder with --to"
                raise RequestError(message, code="several_files")
            sys.stdout.write(files[0].text)
            return
        written = write_files(files, Path(to), force=force)
    show_rows(["file", "change"], [(str(one.path), one.change) for one in written], output)
    if output is Format.TABLE:
        print_text(f"Next: {next_step.format(to=to, version=VERSION)}")
