"""Fixtures of the chaos tests and of the soak. List this module in `pytest_plugins` to use them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harness.chaos import table
from harness.chaos.recovery import worst
from harness.chaos.reference import Reference, reference_of
from harness.chaos.run import WORKERS, ChaosRun, Settings, assembled
from harness.workbench import Workbench

FULL_SPEED = 0.0
# The collectives must notice a lost worker within this time.
DETECTION_SECONDS = 15.0


@pytest.fixture(scope="session")
def undisturbed(
    workbench: Workbench, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Settings], Reference]:
    """Train undisturbed, once per session and settings."""
    known: dict[Settings, Reference] = {}

    def train(settings: Settings) -> Reference:
        folder = tmp_path_factory.mktemp("undisturbed")
        with assembled(workbench, folder, settings) as run:
            run.boot(FULL_SPEED)
            codes = run.wait_for_end()
            assert codes == [0] * WORKERS, run.logs()
            return reference_of(run.machines)

    def train_once(settings: Settings) -> Reference:
        if settings not in known:
            known[settings] = train(settings)
        return known[settings]

    return train_once


@pytest.fixture
def begin_run(workbench: Workbench, tmp_path: Path) -> Iterator[Callable[..., ChaosRun]]:
    """Start three machines that train; `assembled` describes the options of single machines."""
    with ExitStack() as stack:

        def begin(settings: Settings, step_seconds: float, **own: Any) -> ChaosRun:
            run = stack.enter_context(assembled(workbench, tmp_path, settings, **own))
            run.boot(step_seconds)
            return run

        yield begin


@pytest.fixture(scope="session")
def rows(request: pytest.FixtureRequest) -> Iterator[list[table.Row]]:
    """Collect the table's rows, and write them into the file of --chaos-table at the end."""
    found: list[table.Row] = []
    yield found
    file = request.config.getoption("--chaos-table")
    if file and found:
        table.update(Path(file), found, table.today(), table.this_machine())


@pytest.fixture
def ends_as_undisturbed(
    undisturbed: Callable[[Settings], Reference], rows: list[table.Row]
) -> Callable[..., None]:
    """Check that a run ends like an undisturbed one, and add it to the table.

    `most_lost_steps` is the number of steps that a disturbance may cost, and `noticed_within` the
    time within which the other workers, if any, must notice it, in seconds. With `may_be_missed`,
    they need not notice it at all.
    """

    def check(
        run: ChaosRun,
        scenario: str,
        most_lost_steps: int,
        noticed_within: float = DETECTION_SECONDS,
        *,
        may_be_missed: bool = False,
    ) -> None:
        run.set_pace(FULL_SPEED)
        codes = run.wait_for_end()
        print(run.logs())
        assert codes == [0] * WORKERS
        found = undisturbed(run.settings).differences(run.machines, most_lost_steps)
        assert not found, "\n".join(found)
        row = table.Row(scenario, max(run.lost_steps()), worst(run.recoveries()))
        print(row)
        has_witnesses = any(len(one.victims) < WORKERS for one in run.disturbances)
        if row.recovery.detection is None:
            assert may_be_missed or not has_witnesses
        else:
            assert row.recovery.detection <= noticed_within
        rows.append(row)

    return check
