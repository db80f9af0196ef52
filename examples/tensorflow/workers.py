"""Every worker learns from its part of each batch, and all add up: MultiWorkerMirroredStrategy, as TF_CONFIG says.

Each replica of a TFJob runs this program (`python workers.py`); they wait for each other.
"""

import importlib.util
import os
import sys

if importlib.util.find_spec("tf_keras"):
    # The strategies of several machines are those of Keras 2: since TensorFlow 2.16 that is a package of its own.
    os.environ["TF_USE_LEGACY_KERAS"] = "1"

import tensorflow as tf
from points import points

EPOCHS, STEPS, BATCH = 12, 32, 64
"""The batch is that of one worker."""
WANTED_LOSS = 0.25
"""A coin's is 0.69."""


def main() -> int:
    # First of all: it opens the port at which the others reach this worker.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    workers = strategy.num_replicas_in_sync
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.Input((2,)), tf.keras.layers.Dense(24, "tanh"), tf.keras.layers.Dense(1, "sigmoid")]
        )
        model.compile(tf.keras.optimizers.SGD(0.3, momentum=0.9), "binary_crossentropy")
    examples = tf.data.Dataset.from_tensor_slices(points()).repeat().batch(BATCH * workers)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA

    def say(epoch: int, measured: dict[str, float]) -> None:
        print(f"epoch={epoch + 1} loss={measured['loss']:.4f} workers={workers}", flush=True)

    learnt = model.fit(
        examples.with_options(options),
        epochs=EPOCHS,
        steps_per_epoch=STEPS,
        verbose=0,
        callbacks=[tf.keras.callbacks.LambdaCallback(on_epoch_end=say)],
    )
    return 0 if learnt.history["loss"][-1] < WANTED_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
