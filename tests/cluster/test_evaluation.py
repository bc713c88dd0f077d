"""Evaluation counts each test example once, on any number of workers."""

import pytest

SIZES = (1, 2, 3, 4)
DIGITS_TEST_EXAMPLES = 360


@pytest.fixture(scope="module")
def evaluated(run):
    """The metrics of a run that changes no weight: every size evaluates the same network."""

    def of(workers):
        ended = run(
            WORKERS=workers,
            TRAINER_EPOCHS=1,
            TRAINER_STEPS_PER_EPOCH=1,
            TRAINER_LEARNING_RATE=1e-30,
            TRAINER_PER_REPLICA_BATCH_SIZE=37,
        )
        return ended.raise_unless_done().metrics()[-1]

    return of


@pytest.mark.parametrize("workers", SIZES)
def test_every_test_example_counts_once(evaluated, workers):
    assert evaluated(workers)["test_examples"] == DIGITS_TEST_EXAMPLES


@pytest.mark.parametrize("workers", SIZES)
def test_the_number_of_correct_answers_is_exactly_the_same(evaluated, workers):
    found = evaluated(workers)
    correct = found["test_accuracy"] * found["test_examples"]
    assert correct == pytest.approx(round(correct), abs=1e-3)
    alone = evaluated(1)
    assert round(correct) == round(alone["test_accuracy"] * alone["test_examples"]) > 0


@pytest.mark.parametrize("workers", SIZES)
def test_the_test_loss_is_the_same_to_rounding(evaluated, workers):
    assert evaluated(workers)["test_loss"] == pytest.approx(evaluated(1)["test_loss"], rel=1e-5)
