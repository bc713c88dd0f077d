"""The outcome of a program, for the test to compare."""


def describe(model, history, *data):
    """Return the history and the weights; with data, also the evaluation and the predictions."""
    outcome = {"history": history.history, "weights": model.get_weights()}
    if data:
        evaluation = model.evaluate(*data, batch_size=16, verbose=0, return_dict=True)
        predictions = model.predict(data[0], batch_size=16, verbose=0)
        outcome |= {"evaluation": evaluation, "predictions": predictions}
    return outcome
