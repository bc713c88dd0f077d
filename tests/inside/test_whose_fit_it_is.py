"""Checkpoints belong to one process, one call, one script: no training gets another's results."""

import json
import textwrap

import pytest

from conftest import quick_first

BEGINNING = """
import json, os, pathlib, signal, sys, time
import keras, numpy as np

def rows(seed=0):
    x = np.random.default_rng(seed).random((32, 4)).astype("float32")
    return x, x.sum(1)

def built(units=3, rate=0.0):
    layers = [keras.layers.Dense(units, "relu"), keras.layers.Dropout(rate, seed=1)]
    return keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])

def compiled(loss="mse", **given):
    model = built(**given)
    model.compile(keras.optimizers.SGD(0.05), loss)
    return model

def tell(model, history=None, **more):
    losses = history.history["loss"] if history else []
    total = float(sum(np.abs(one).sum() for one in model.get_weights()))
    print("TOLD " + json.dumps({"losses": losses, "total": total, **more}), flush=True)

class Dies(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1 and not os.path.exists("died"):
            open("died", "w").close()
            run = pathlib.Path(os.environ["TRAINER_RUN_DIR"])
            while not [*run.glob("worker-0/fit-*/checkpoints/[0-9]*.npz")]:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def start(starts, tmp_path):
    """Return a function that writes a script, and starts it with one run folder."""
    runs = tmp_path / "runs"
    runs.mkdir()
    (tmp_path / "code").mkdir()

    def start(program, *arguments, name="train.py", edit=("", ""), **more):
        script = tmp_path / "code" / name
        text = BEGINNING + textwrap.dedent(program)
        script.write_text(text.replace(*edit) if edit[0] else text)
        return starts.start(script, *arguments, run_dir=runs, **more)

    start.runs, start.code = runs, tmp_path / "code"
    return start


PROCESSES = """
from multiprocessing import get_context

def train(seed):
    keras.utils.set_random_seed(seed)
    model = compiled()
    tell(model, model.fit(*rows(), epochs=3, batch_size=8, verbose=0), seed=seed)

if __name__ == "__main__":
    for seed in range(3):
        process = get_context("fork").Process(target=train, args=(seed,))
        process.start()
        process.join()
        assert process.exitcode == 0
"""


def test_each_process_of_a_start_trains_by_itself(start):
    """Scripts do so to free memory. The first process keeps its fit, and the others warn."""
    ended = start(PROCESSES)
    assert ended.code == 0, ended.output
    assert [one["seed"] for one in ended.told] == [0, 1, 2]
    assert len({one["total"] for one in ended.told}) == 3
    assert all(len(one["losses"]) == 3 for one in ended.told)
    assert ended.output.count("are not saved") == 2
    again = start(PROCESSES)
    assert again.told == ended.told, again.output
    assert "had ended" not in again.output  # it was trained again, as the first start was over


SHIFTED = """
import tensorflow as tf

shift = float(os.environ["SHIFT"])  # such as np.random.uniform(), without a seed
data = tf.data.Dataset.from_tensor_slices(rows()).batch(8).map(lambda x, y: (x, y + shift))
keras.utils.set_random_seed(1)
model = compiled()
tell(model, model.fit(data, epochs=2, verbose=0))
sys.exit(1)
"""


def test_a_finished_fit_is_not_taken_for_other_numbers_of_its_pipeline(start):
    first = start(SHIFTED, SHIFT="0")
    assert first.code == 1, first.output
    other = start(SHIFTED, SHIFT="5")
    assert other.code == 78, other.output
    assert "the numbers in functions of tf.data" in other.output
    again = start(SHIFTED, SHIFT="0")
    assert again.told == first.told, again.output
    assert "had ended" in again.output


@pytest.mark.long
def test_processes_that_are_spawned_train_by_themselves_too(start):
    """Each imports the script anew, as `__mp_main__`."""
    program = PROCESSES.replace('"fork"', '"spawn"').replace("range(3)", "range(2)")
    ended = start(program)
    assert ended.code == 0, ended.output
    assert [one["seed"] for one in ended.told] == [0, 1]
    assert len({one["total"] for one in ended.told}) == 2
    assert ended.output.count("are not saved") == 1


AT_ONCE = """
from multiprocessing import get_context

class Kills(keras.callbacks.Callback):
    def __init__(self, number, begun):
        super().__init__()
        self.number, self.begun = number, begun

    def on_train_begin(self, logs=None):
        self.begun[self.number].set()

    def on_epoch_end(self, epoch, logs=None):
        assert all(one.wait(100) for one in self.begun)
        if epoch == 1 and not os.path.exists("died"):
            run = pathlib.Path(os.environ["TRAINER_RUN_DIR"])
            while not [*run.glob("worker-0/fit-*/checkpoints/[0-9]*.npz")]:
                time.sleep(0.01)
            open("died", "w").close()
            os.killpg(0, signal.SIGKILL)

def train(seed, begun):
    keras.utils.set_random_seed(seed)
    model, kills = compiled(), Kills(seed, begun)
    history = model.fit(*rows(), epochs=4, batch_size=8, verbose=0, callbacks=[kills])
    tell(model, history, seed=seed)

if __name__ == "__main__":
    context = get_context(os.environ["CONTEXT"])
    begun, processes = [context.Event() for _ in range(2)], []
    for seed in json.loads(os.environ["ORDER"]):
        processes.append(context.Process(target=train, args=(seed, begun)))
        processes[-1].start()
        assert begun[seed].wait(100)
    for process in processes:
        process.join()
        assert process.exitcode == 0
"""


@pytest.mark.parametrize(
    ("context", "order", "resumes"),
    quick_first(
        1,
        [
            ("fork", "[0, 1]", True),
            ("fork", "[1, 0]", False),
            ("spawn", "[0, 1]", True),
        ],
    ),
)
def test_processes_that_train_at_once_are_not_mixed_up_after_a_kill(start, context, order, resumes):
    """The first one that calls `fit` keeps checkpoints; after the kill it may be another one."""
    killed = start(AT_ONCE, CONTEXT=context, ORDER="[0, 1]")
    assert killed.code == -9, killed.output
    ended = start(AT_ONCE, CONTEXT=context, ORDER=order)
    assert ended.code == 0, ended.output
    assert ("resuming from step" in ended.output) == resumes
    other = str(start.code / "other")
    undisturbed = start(AT_ONCE, CONTEXT=context, ORDER=order, TRAINER_RUN_DIR=other)
    pairs = zip(by_seed(ended), by_seed(undisturbed), strict=True)
    for seed, (one, reference) in enumerate(pairs):
        assert one["seed"] == reference["seed"] == seed
        assert one["losses"] == pytest.approx(reference["losses"], rel=1e-6)
        assert one["total"] == pytest.approx(reference["total"], rel=1e-6)


def by_seed(ended):
    return sorted(ended.told, key=lambda one: one["seed"])


THREADS = """
import threading
at_once = threading.Barrier(2)
begun = [threading.Event(), threading.Event()]

class RunsBesideTheOther(keras.callbacks.Callback):
    def __init__(self, number):
        super().__init__()
        self.number = number

    def on_epoch_begin(self, epoch, logs=None):
        begun[self.number].set()
        assert begun[1 - self.number].wait(60)

def train(number):
    model, beside = compiled(), RunsBesideTheOther(number)
    at_once.wait(60)
    model.fit(*rows(), epochs=2 + 2 * number, batch_size=8, verbose=0, callbacks=[beside])
    tell(model, number=number)

threads = [threading.Thread(target=train, args=(number,)) for number in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit(1)  # so that its fits count as ended, and the script does not
"""


@pytest.mark.long
def test_fits_of_two_threads_are_kept_side_by_side(start):
    told = start(THREADS)
    assert told.code == 1, told.output
    assert sorted(one["number"] for one in told.told) == [0, 1], told.output
    again = start(THREADS)
    assert again.code == 1, again.output
    assert sorted(map(str, again.told)) == sorted(map(str, told.told)), again.output
    assert again.output.count("had ended after") == 2


@pytest.mark.parametrize(("eagerly", "code"), quick_first(1, [(False, 78), (True, 0)]))
def test_a_process_that_was_forked_after_tensorflow_had_begun_is_refused(start, eagerly, code):
    """It lacks the threads that run compiled functions, and would hang silently."""
    program = f"""
        from multiprocessing import get_context

        def call(name):
            model = compiled()
            model.run_eagerly = {eagerly}
            x, y = rows()
            getattr(model, name)(*([x] if name == "predict" else [x, y]), verbose=0)

        compiled()
        names = ["fit", "evaluate", "predict"]
        processes = [get_context("fork").Process(target=call, args=(name,)) for name in names]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        print("TOLD", [process.exitcode for process in processes])
    """
    ended = start(program)
    assert ended.told == [[code] * 3], ended.output
    assert ended.code == 0


@pytest.mark.long
def test_a_refusal_in_a_thread_ends_the_process(start):
    """SystemExit would end only the thread, and the script would go on without its training."""
    program = """
        import threading

        model = compiled()
        thread = threading.Thread(target=lambda: model.fit(*rows(), verbose=0))
        thread.start()
        thread.join()
        tell(model)
    """
    refused = start(program, TRAINER_RESUME="must")
    assert refused.code == 78, refused.output
    assert not refused.told
    assert "no worker has a complete checkpoint" in refused.output


OUR_OWN = """
from cluster_trainer import fit

def train(rate):
    model = compiled(rate=rate)
    told = fit(model, (rows(), None), epochs=2, run_dir=os.environ["TRAINER_RUN_DIR"])
    tell(model, epochs=len(told))
"""


def test_our_own_fit_gives_no_process_the_results_of_another(start):
    program = f"""
{OUR_OWN}
from multiprocessing import get_context
for _ in range(2):
    process = get_context("fork").Process(target=train, args=(0.0,))
    process.start()
    process.join()
    print("TOLD", process.exitcode)
"""
    ended = start(program)
    assert [told for told in ended.told if isinstance(told, int)] == [0, 78], ended.output
    assert "run_dir" in ended.output


@pytest.mark.long
def test_our_own_fit_goes_on_with_the_same_model_alone(start):
    assert start(f"{OUR_OWN}\ntrain(0.0)\nsys.exit(1)").code == 1
    refused = start(f"{OUR_OWN}\ntrain(0.2)")
    assert refused.code == 78, refused.output
    assert "variables" in refused.output
    ended = start(f"{OUR_OWN}\ntrain(0.0)")
    assert ended.code == 0, ended.output


def test_a_script_that_is_called_by_another_trains_unkept(start):
    fit = "model = compiled(); tell(model, model.fit(*rows(), epochs=2, verbose=0))"
    (start.code / "other.py").write_text(BEGINNING + fit)
    program = f"""
        import subprocess
        {fit}
        subprocess.run([sys.executable, "other.py"], check=True)
    """
    ended = start(program)
    assert ended.code == 0, ended.output
    assert len(ended.told) == 2
    assert "other.py" in ended.output
    assert "are not saved" in ended.output


TWO_STAGES = """
keras.utils.set_random_seed(5)
model = compiled()
FIRST
model.compile(keras.optimizers.SGD(0.02), "mse")
second = model.fit(*rows(1), epochs=4, batch_size=8, verbose=0, callbacks=[Dies()])
tell(model, second)
"""
IF_EXISTS = """
if os.path.exists("first.weights.h5"):
    model.load_weights("first.weights.h5")
else:
    model.fit(*rows(), epochs=2, batch_size=8, verbose=0)
    model.save_weights("first.weights.h5")
"""


def test_a_second_fit_is_not_taken_for_a_first_that_the_script_left_out(start):
    """The start after a kill in the second fit finds the first fit's file, and skips that fit."""
    program = TWO_STAGES.replace("FIRST", IF_EXISTS)
    assert start(program).code == -9
    ended = start(program)
    assert ended.code == 0, ended.output
    assert "had ended" not in ended.output
    (start.code / "first.weights.h5").unlink()
    undisturbed = start(program, TRAINER_RUN_DIR=str(start.code / "other"))
    assert ended.told[0]["total"] == pytest.approx(undisturbed.told[0]["total"], rel=1e-6)
    assert ended.told[0]["losses"] == pytest.approx(undisturbed.told[0]["losses"], rel=1e-6)


@pytest.mark.parametrize("seeded", [pytest.param(True, marks=pytest.mark.long), False])
def test_one_of_a_loop_is_not_taken_for_another_that_the_script_left_out(start, seeded):
    """An ensemble trains its members in one line of the script, and skips finished members."""
    program = f"""
        for member in range(3):
            if os.path.exists(f"{{member}}.weights.h5"):
                continue
            if {seeded}:
                keras.utils.set_random_seed(member)
            model = compiled()
            history = model.fit(*rows(), epochs=3, batch_size=8, verbose=0)
            model.save_weights(f"{{member}}.weights.h5")
            tell(model, history, member=member)
            if member == 0 and not os.path.exists("died"):
                open("died", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
    """
    first = start(program)
    assert first.code == -9, first.output
    ended = start(program)
    assert ended.code == 0, ended.output
    assert [one["member"] for one in ended.told] == [1, 2]
    totals = [one["total"] for one in [*first.told, *ended.told]]
    assert len(set(totals)) == 3, ended.output


def test_what_may_be_another_ended_fit_is_refused(start):
    """The line, the count and the data are the same, but the weights come from a fit."""
    program = """
        stage = 0
        model = compiled()
        while stage < 2:
            file = f"stage-{stage}.weights.h5"
            stage += 1
            if os.path.exists(file):
                model.load_weights(file)
                continue
            tell(model, model.fit(*rows(), epochs=2, batch_size=8, verbose=0), stage=stage)
            model.save_weights(file)
            if not os.path.exists("died"):
                open("died", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
    """
    assert start(program).code == -9
    refused = start(program)
    assert refused.code == 78, refused.output
    assert "TRAINER_RESUME=never" in refused.output
    assert not refused.told
    anew = start(program, TRAINER_RESUME="never")
    assert anew.code == 0, anew.output
    assert [one["stage"] for one in anew.told] == [2]


PLAIN = """
model = compiled()
history = model.fit(*rows(), epochs=4, batch_size=8, verbose=0, callbacks=[Dies()])
tell(model, history)
"""


@pytest.mark.parametrize(
    ("edit", "what"),
    quick_first(
        1,
        [
            (("compiled()", 'compiled("mae")'), "the loss"),
            (("rate=0.0", "rate=0.2"), "variables"),
            (("seed=1)", "noise_shape=(None, 3), seed=1)"), "the layers"),
            (("verbose=0", "verbose=0, class_weight={0: 1.0, 1: 2.0}"), "the class weights"),
            (('"relu"', '"tanh"'), "the layers"),
            (("0.05), loss)", '0.05), loss, metrics=["mae"])'), "the metrics"),
        ],
    ),
)
def test_another_training_is_not_gone_on_with(start, edit, what):
    assert start(PLAIN).code == -9
    refused = start(PLAIN, edit=edit)
    assert refused.code == 78, refused.output
    assert what in refused.output
    assert "TRAINER_RESUME=never" in refused.output


def test_other_arguments_are_refused_and_not_shown(start):
    assert start(PLAIN, "--password", "first-secret").code == -9
    refused = start(PLAIN, "--password", "other-secret")
    assert refused.code == 78, refused.output
    assert "secret" not in refused.output
    kept = (start.runs / "worker-0/fit-1/call.json").read_text()
    assert "secret" not in kept


def test_a_script_whose_text_alone_differs_goes_on_and_says_so(start):
    assert start(PLAIN).code == -9
    ended = start(PLAIN.replace("epochs=4", "epochs=5") + "\n# more words\n")
    assert ended.code == 0, ended.output
    assert "resuming from step" in ended.output
    assert "WARNING" in ended.output
    assert "train.py" in ended.output
    assert len(ended.told[0]["losses"]) == 5


@pytest.mark.parametrize(
    "seed", ["", pytest.param("keras.utils.set_random_seed(3)", marks=pytest.mark.long)]
)
def test_a_plain_script_goes_on_where_it_was_killed(start, seed):
    """Without a seed, the model begins with other weights at each start."""
    assert start(seed + PLAIN).code == -9
    ended = start(seed + PLAIN)
    assert ended.code == 0, ended.output
    assert "resuming from step" in ended.output
    assert len(ended.told[0]["losses"]) == 4


@pytest.mark.long
def test_an_unseeded_script_of_several_fits_goes_on_in_the_second(start):
    program = """
        model = compiled()
        first = model.fit(*rows(), epochs=2, batch_size=8, verbose=0)
        second = model.fit(*rows(), epochs=4, batch_size=8, verbose=0, callbacks=[Dies()])
        tell(model, second, first=first.history["loss"])
    """
    assert start(program).code == -9
    ended = start(program)
    assert ended.code == 0, ended.output
    assert "fit 1: had ended" in ended.output
    assert "fit 2: resuming" in ended.output
    assert len(ended.told[0]["first"]) == 2


@pytest.mark.long
def test_a_script_of_ones_own_resume_goes_on_too(start):
    """The script loads its best weights if there are any; the fit at that place is the same."""
    program = """
        model = compiled()
        if os.path.exists("best.weights.h5"):
            model.load_weights("best.weights.h5")
        saving = keras.callbacks.ModelCheckpoint("best.weights.h5", save_weights_only=True)
        tell(model, model.fit(*rows(), epochs=4, verbose=0, callbacks=[saving, Dies()]))
    """
    assert start(program).code == -9
    ended = start(program)
    assert ended.code == 0, ended.output
    assert "resuming from step" in ended.output


def test_the_next_script_moves_aside_what_the_first_has_left(start):
    fit = "model = compiled(); model.fit(*rows(), epochs=2, verbose=0)"
    assert start(fit, name="first.py").code == 0
    left = {one.name for one in (start.runs / "worker-0/fit-1").iterdir()}
    ended = start(fit, name="second.py")
    assert ended.code == 0, ended.output
    assert "first.py" in ended.output
    (place,) = (start.runs / "worker-0/earlier").iterdir()
    assert str(place) in ended.output
    assert {one.name for one in (place / "fit-1").iterdir()} == left
    assert (place / "events.jsonl").read_text()
    for number in range(2):
        assert start(fit, str(number), name="second.py").code == 0
    assert len([*(start.runs / "worker-0/earlier").iterdir()]) == 3
    assert start(fit, name="second.py", TRAINER_KEEP_EARLIER="1").code == 0
    assert len([*(start.runs / "worker-0/earlier").iterdir()]) == 1


@pytest.mark.long
def test_a_script_that_was_interrupted_is_not_mixed_with_another(start):
    assert start(PLAIN, name="first.py").code == -9
    before = sorted(one.name for one in (start.runs / "worker-0/fit-1").iterdir())
    refused = start(PLAIN, name="second.py")
    assert refused.code == 78, refused.output
    assert "first.py" in refused.output
    assert sorted(one.name for one in (start.runs / "worker-0/fit-1").iterdir()) == before
    assert start(PLAIN, name="first.py").code == 0


@pytest.mark.parametrize(
    "end", ["raise SystemExit('no')", pytest.param("os._exit(3)", marks=pytest.mark.long)]
)
def test_only_code_0_is_an_end(start, end):
    """Otherwise each start after a failure would train from the beginning."""
    program = f"""
        model = compiled()
        history = model.fit(*rows(), epochs=3, batch_size=8, verbose=0)
        tell(model, history)
        if not os.path.exists("mended"):
            {end}
    """
    first = start(program)
    assert first.code not in {0, 78}, first.output
    (start.code / "mended").touch()
    ended = start(program)
    assert ended.code == 0, ended.output
    assert "had ended" in ended.output
    assert ended.told == first.told
    assert "had ended" not in start(program).output


def test_a_scripts_own_handler_is_called_after_the_checkpoint(start):
    program = """
        def handle(number, frame):
            kept = sorted(os.listdir(os.environ["TRAINER_RUN_DIR"] + "/worker-0/fit-1/checkpoints"))
            tell(model, number=number, kept=kept)
            sys.exit(0)

        signal.signal(signal.SIGTERM, handle)

        class Stops(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                if epoch == 1:
                    os.kill(os.getpid(), signal.SIGTERM)

        model = compiled()
        model.fit(*rows(), epochs=500, batch_size=8, verbose=0, callbacks=[Stops()])
    """
    ended = start(program)
    assert ended.code == 143, ended.output
    (told,) = ended.told
    assert told["number"] == 15
    last = json.loads(json.dumps(told["kept"]))[-1]
    assert int(last.partition(".")[0]) >= 8


@pytest.mark.parametrize(
    "data",
    quick_first(
        1,
        [
            "*split, batch_size=8",
            "tf.data.Dataset.from_tensor_slices(split).shuffle(24, seed=1).batch(8)",
        ],
    ),
    ids=["arrays", "a dataset"],
)
def test_unseeded_data_that_were_interrupted_are_refused_with_what_to_do(start, data):
    program = f"""
        import tensorflow as tf

        x, y = rows()
        chosen = np.random.permutation(32)[:24]
        split = x[chosen], y[chosen]
        model = compiled()
        model.fit({data}, epochs=4, verbose=0, callbacks=[Dies()])
    """
    assert start(program).code == -9
    refused = start(program)
    assert refused.code == 78, refused.output
    assert "set_random_seed" in refused.output


KILLED = """
def killed_once(what):
    if not os.path.exists("killed"):
        open("killed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
"""
LEFT_OUT = {
    "calls of several lines that begin alike": """
        for stage in ("a", "b"):
            if stage == "a" and not os.path.exists("a.weights.h5"):
                model = compiled()
                history = model.fit(
                    *rows(0), epochs=2, batch_size=8, verbose=0,
                )
                model.save_weights("a.weights.h5"); tell(model, history, what="a"); killed_once("a")
            if stage == "b":
                model = compiled()
                history = model.fit(
                    *rows(0), epochs=3, batch_size=8, verbose=0,
                )
                tell(model, history, what="b")
    """,
    "a loop over dictionaries": """
        for setting in [{"seed": 1}, {"seed": 2}]:
            name = f"{setting['seed']}.weights.h5"
            if os.path.exists(name):
                continue
            keras.utils.set_random_seed(setting["seed"])
            model = compiled()
            history = model.fit(*rows(), epochs=2, batch_size=8, verbose=0)
            model.save_weights(name); tell(model, history, what=name); killed_once(name)
    """,
    "a loop over objects": """
        class Experiment:
            def __init__(self, name):
                self.name = name

            def run(self):
                model = compiled()
                history = model.fit(*rows(), epochs=2, batch_size=8, verbose=0)
                model.save_weights(self.name); tell(model, history, what=self.name)

        for one in [Experiment("1.weights.h5"), Experiment("2.weights.h5")]:
            if not os.path.exists(one.name):
                one.run()
                killed_once(one.name)
    """,
}


@pytest.mark.parametrize(
    "name",
    quick_first(
        1,
        [
            "calls of several lines that begin alike",
            "a loop over dictionaries",
            "a loop over objects",
        ],
    ),
)
def test_a_fit_that_follows_one_that_was_left_out_is_trained(start, name):
    program = LEFT_OUT[name]
    first = start(KILLED + textwrap.dedent(program))
    assert first.code == -9, first.output
    ended = start(KILLED + textwrap.dedent(program))
    assert ended.code == 0, ended.output
    assert "had ended" not in ended.output
    whats = [one["what"] for one in [*first.told, *ended.told]]
    assert len(whats) == len({*whats}) == 2, ended.output


@pytest.mark.parametrize(
    ("first", "second", "what"),
    quick_first(
        1,
        [
            ({"SEED": "1"}, {"SEED": "2"}, "seed"),
            ({"EPOCHS": "4"}, {"EPOCHS": "2"}, "epochs"),
            ({"KIND": "flip"}, {"KIND": "turn"}, "kind"),
            ({"SCALE": "1"}, {"SCALE": "3"}, "losses and metrics"),
            ({"PATIENCE": "5"}, {"PATIENCE": "1"}, "callbacks"),
        ],
    ),
)
def test_what_the_environment_makes_another_training_is_refused(start, first, second, what):
    program = """
        def train(kind):
            keras.utils.set_random_seed(int(os.environ.get("SEED", "3")))
            scale = float(os.environ.get("SCALE", "1"))
            model = compiled(lambda y, mine: scale * keras.losses.mean_squared_error(y, mine))
            epochs = int(os.environ.get("EPOCHS", "4"))
            patience = int(os.environ.get("PATIENCE", "5"))
            stop = keras.callbacks.EarlyStopping("loss", patience=patience)
            tell(model, model.fit(*rows(), epochs=epochs, verbose=0, callbacks=[stop]))

        train(os.environ.get("KIND", "none"))
        sys.exit(1)
    """
    assert start(program, **first).code == 1
    refused = start(program, **second)
    assert refused.code == 78, refused.output
    assert what in refused.output
    assert not refused.told


FUNCTIONS = """
def weak(x, y):
    return x, y

def strong(x, y):
    return x, y + 5.0

def train(make, epochs=2):
    file = f"{make.__name__}.weights.h5"
    if os.path.exists(file):
        return
    import tensorflow as tf
    keras.utils.set_random_seed(1)
    model = compiled()
    data = tf.data.Dataset.from_tensor_slices(rows()).batch(8).map(make)
    history = model.fit(data, epochs=epochs, verbose=0)
    model.save_weights(file)
    tell(model, history, what=file)
    killed_once(file)
"""
OVER_FUNCTIONS = {
    "functions": "for make in (weak, strong): train(make)",
    "map": "[*map(train, (weak, strong))]",
    "dictionaries": """
        for one in ({"epochs": 2, "make": weak}, {"epochs": 2, "make": strong}):
            train(one["make"], one["epochs"])
    """,
    "datasets": """
        import tensorflow as tf

        rows_of = tf.data.Dataset.from_tensor_slices(rows()).batch(8)
        for data in (rows_of.map(weak), rows_of.map(strong)):
            if os.path.exists("ended") and not os.path.exists("left out"):
                open("left out", "w").close()
                continue
            keras.utils.set_random_seed(1)
            model = compiled()
            tell(model, model.fit(data, epochs=2, verbose=0))
            open("ended", "w").close()
            killed_once("ended")
    """,
}


@pytest.mark.parametrize(
    "name",
    quick_first(
        1,
        [
            "functions",
            "map",
            "dictionaries",
            "datasets",
        ],
    ),
)
def test_calls_of_which_only_a_function_differs_are_told_apart(start, name):
    """They begin with the same weights, and the script leaves out the call that had ended."""
    program = KILLED + FUNCTIONS + textwrap.dedent(OVER_FUNCTIONS[name])
    first = start(program)
    assert first.code == -9, first.output
    ended = start(program)
    assert ended.code == 0, ended.output
    assert "had ended" not in ended.output
    (one,), (other,) = first.told, ended.told
    assert len(other["losses"]) == 2
    assert other["total"] != pytest.approx(one["total"])


@pytest.mark.long
def test_a_result_that_the_weights_alone_tell_is_returned_with_a_warning(start):
    """The script's next call may begin with the same weights."""
    program = """
        stage = 0
        while stage < 2:
            stage += 1
            keras.utils.set_random_seed(1)
            model = compiled()
            tell(model, model.fit(*rows(), epochs=2, batch_size=8, verbose=0), stage=stage)
        if not os.path.exists("died"):
            open("died", "w").close()
            sys.exit(1)
    """
    first = start(program)
    assert first.code == 1, first.output
    assert "because the model begins with the same weights" not in first.output
    ended = start(program)
    assert ended.code == 0, ended.output
    assert ended.told == first.told
    assert "because the model begins with the same weights" in ended.output


GOES_ON = {
    "a crop that draws its seed": """
        inputs = keras.Input((8, 8, 1))
        cropped = keras.layers.RandomCrop(6, 6)(inputs)
        model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Flatten()(cropped)))
        model.compile("sgd", "mse")
        pictures = np.zeros((16, 8, 8, 1), "float32")
        tell(model, model.fit(pictures, np.zeros(16), epochs=3, verbose=0, callbacks=[Dies()]))
    """,
    "a loop that is over": """
        for name, value in list(os.environ.items()) + [("now", os.urandom(3).hex())]:
            pass
        model = compiled()
        tell(model, model.fit(*rows(), epochs=3, verbose=0, callbacks=[Dies()]))
    """,
    "a time as a parameter": """
        import time

        def train(model, started, folder):
            tell(model, model.fit(*rows(), epochs=3, verbose=0, callbacks=[Dies()]))

        train(compiled(), time.time(), time.strftime("runs-%Y%m%d-%H%M%S"))
    """,
    "a rate that a first fit's callback changes": """
        class Anneals(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                self.model.layers[1].rate = 0.25

        model = compiled(rate=0.5)
        model.fit(*rows(), epochs=2, verbose=0, callbacks=[Anneals()])
        tell(model, model.fit(*rows(), epochs=3, verbose=0, callbacks=[Dies()]))
    """,
    "a module that cannot be looked at": """
        import types

        class Lazy(types.ModuleType):
            def __getattr__(self, name):
                raise ImportError(name)

        lazy = Lazy("lazy")
        lazy.__file__ = lazy.__spec__ = None
        del lazy.__file__
        sys.modules["lazy"] = lazy
        model = compiled()
        tell(model, model.fit(*rows(), epochs=3, verbose=0, callbacks=[Dies()]))
    """,
}


@pytest.mark.parametrize(
    "name",
    quick_first(
        1,
        [
            *("a crop that draws its seed", "a rate that a first fit's callback changes"),
            *(
                *("a loop that is over", "a time as a parameter"),
                "a module that cannot be looked at",
            ),
        ],
    ),
)
def test_ordinary_programs_go_on_where_they_were_killed(start, name):
    program = GOES_ON[name]
    assert start(program).code == -9
    ended = start(program)
    assert ended.code == 0, ended.output
    assert "resuming from step" in ended.output
    assert len(ended.told[0]["losses"]) == 3


@pytest.mark.long
def test_a_script_that_loads_its_best_weights_may_fail_after_its_fit(start):
    program = """
        model = compiled()
        if os.path.exists("best.weights.h5"):
            model.load_weights("best.weights.h5")
        saving = keras.callbacks.ModelCheckpoint("best.weights.h5", save_weights_only=True)
        history = model.fit(*rows(), epochs=3, verbose=0, callbacks=[saving])
        if not os.path.exists("mended"):
            open("mended", "w").close()
            sys.exit(1)
        tell(model, history)
    """
    assert start(program).code == 1
    ended = start(program)
    assert ended.code == 0, ended.output
    assert "had ended" in ended.output


@pytest.mark.long
def test_a_process_that_keeps_nothing_leaves_the_mark_of_an_end(start):
    assert start("model = compiled(); model.fit(*rows(), verbose=0)").code == 0
    nothing = "model = compiled(); model.fit(*rows(), verbose=0)"
    assert start(nothing, TRAINER_CHECKPOINT_STEPS="0").code == 0
    assert (start.runs / "worker-0/ENDED").exists()


@pytest.mark.long
def test_a_handler_that_interrupts_does_not_keep_the_process(start):
    program = """
        def interrupt(number, frame):
            raise KeyboardInterrupt

        signal.signal(signal.SIGTERM, interrupt)

        class Stops(keras.callbacks.Callback):
            def on_epoch_end(self, epoch, logs=None):
                os.kill(os.getpid(), signal.SIGTERM)

        model = compiled()
        try:
            model.fit(*rows(), epochs=500, batch_size=8, verbose=0, callbacks=[Stops()])
        except KeyboardInterrupt:
            pass
    """
    assert start(program).code == 143
