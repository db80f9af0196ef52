"""The parameter servers hold the model, the chief hands out steps to the workers: ParameterServerStrategy.

Each replica of a TFJob runs this program (`python parameter_server.py`) and finds its part in TF_CONFIG.  Parameter
servers and workers serve for as long as they are let; the chief's end is the job's.
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
WANTED_LOSS = 0.25
"""A coin's is 0.69."""


def serve(cluster: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> None:
    """Never returns."""
    tf.distribute.Server(
        cluster.cluster_spec(), job_name=cluster.task_type, task_index=cluster.task_id, protocol="grpc"
    ).join()


def train(cluster: tf.distribute.cluster_resolver.TFConfigClusterResolver) -> float:
    """The mean loss of the last epoch."""
    strategy = tf.distribute.ParameterServerStrategy(cluster)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = tf.keras.Sequential(
            [tf.keras.Input((2,)), tf.keras.layers.Dense(24, "tanh"), tf.keras.layers.Dense(1, "sigmoid")]
        )
        optimizer = tf.keras.optimizers.legacy.SGD(0.1, momentum=0.9)

    @tf.function
    def on_worker(examples: tf.data.Iterator) -> tf.Tensor:
        def step(places: tf.Tensor, inside: tf.Tensor) -> tf.Tensor:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.keras.losses.binary_crossentropy(inside, model(places, training=True)))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            return loss

        return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(step, next(examples)), axis=None)

    def examples() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices(points()).shuffle(len(points()[0])).repeat().batch(BATCH)

    each_worker = iter(
        coordinator.create_per_worker_dataset(lambda: strategy.distribute_datasets_from_function(lambda _: examples()))
    )
    servers, workers = (len(cluster.cluster_spec().job_tasks(kind)) for kind in ("ps", "worker"))
    loss = float("inf")
    for epoch in range(EPOCHS):
        losses = [coordinator.schedule(on_worker, args=(each_worker,)) for _ in range(STEPS)]
        coordinator.join()
        loss = sum(float(one.fetch()) for one in losses) / STEPS
        print(f"epoch={epoch + 1} loss={loss:.4f} servers={servers} workers={workers}", flush=True)
    return loss


def main() -> int:
    cluster = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if cluster.task_type in ("ps", "worker"):
        serve(cluster)
    return 0 if train(cluster) < WANTED_LOSS else 1


if __name__ == "__main__":
    sys.exit(main())
