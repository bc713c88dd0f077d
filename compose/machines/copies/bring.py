"""Gives the machines what a run needs: the image, the folders and the user's code."""

from __future__ import annotations

from collections.abc import Sequence

from local_cluster.messages import say
from local_cluster.settings.settings import Settings
from machines.checks import connections
from machines.checks.check import refuse
from machines.checks.facts import Facts
from machines.checks.own import Own
from machines.copies import code_folder, image_copy
from machines.copies.code_folder import CodeFolder
from machines.image import Image
from machines.machine import at_once


def pack(chosen: Settings) -> CodeFolder | None:
    """Pack the folder to mount at /workspace; return None if there is none.

    Raises:
        EndError: it cannot be packed.
    """
    if not chosen.mounted:
        return None
    code = code_folder.pack(chosen.mounted, chosen.runs)
    say(f"code: {code.files} files of {chosen.mounted}, digest {code.digest}")
    return code


def send_image(image: Image, told: Sequence[Facts], own: Own) -> None:
    """Send the image to the machines that lack it, and then test all connections.

    Raises:
        EndError: the image could not be sent, or a machine does not reach another one.
    """
    lacking = {one.machine.name: one.machine for one in told if not one.has(image)}
    if lacking:
        refuse(image_copy.send(image, [*lacking.values()]))
        refuse(connections.problems(image.name, told, own))


def make_folders(told: Sequence[Facts], run: str) -> None:
    """Make a run's folders on the machines.

    Raises:
        EndError: a folder cannot be made.
    """
    refuse(at_once(lambda one: code_folder.make_folders(one, run), told))


def send_code(code: CodeFolder, told: Sequence[Facts]) -> None:
    """Copy the code to the machines that lack it.

    Raises:
        EndError: it could not be copied.
    """
    places = {(one.machine.name, one.folder): one for one in told}  # workers may share a folder
    refuse(at_once(lambda one: code_folder.send(code, one), [*places.values()]))
