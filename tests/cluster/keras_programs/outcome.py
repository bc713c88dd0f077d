"""What a program ends with, for the test to compare."""


def describe(model, history, *data):
    """Return the history and the weights, and what `evaluate` and `predict` say of the data."""
    outcome = {"history": history.history, "weights": model.get_weights()}
    if data:
        evaluation = model.evaluate(*data, batch_size=16, verbose=0, return_dict=True)
        predictions = model.predict(data[0], batch_size=16, verbose=0)
        outcome |= {"evaluation": evaluation, "predictions": predictions}
    return outcome
