"""Augments pictures at random: TRAINER_AUGMENT.

The random changes depend on the seed, the pass and the example alone. So any number of replicas
sees the same pictures, and so does a run that was stopped and resumes.
"""

from dataclasses import dataclass

import tensorflow as tf

SMALLEST_WINDOW = 0.75
MIRRORED_SHARE = 0.5


@dataclass(frozen=True)
class Augmentation:
    """The possible changes of a picture.

    Attributes:
        flips: whether half of the pictures are mirrored, left to right.
        crops: whether a random window of a picture is resized to the picture's own size. Its height
            and its width are three quarters to all of the picture's.
    """

    flips: bool
    crops: bool

    def apply(self, pictures: tf.Tensor, seed: int, sightings: tf.Tensor) -> tf.Tensor:
        """Return augmented pictures, float32 [n, height, width, channels].

        Args:
            pictures: float32 [n, height, width, channels].
            seed: the seed of all changes.
            sightings: int64 [n], a different number for each use of each example in the run.
        """
        keys = tf.stack([tf.fill(tf.shape(sightings), tf.constant(seed, tf.int64)), sightings], 1)
        boxes = tf.map_fn(self._box, keys, fn_output_signature=tf.TensorSpec([4], tf.float32))
        return tf.image.crop_and_resize(
            pictures, boxes, tf.range(tf.shape(pictures)[0]), pictures.shape[1:3]
        )

    def _box(self, key: tf.Tensor) -> tf.Tensor:
        """Draw [top, left, bottom, right], float32 [4], 0 to 1; to mirror, left exceeds right."""
        # The algorithm is fixed: otherwise TensorFlow would choose one by the hardware.
        drawn = tf.random.stateless_uniform([5], key, alg="philox")
        flip, size, place = drawn[0] < MIRRORED_SHARE, drawn[1:3], drawn[3:5]
        if not self.crops:
            size = tf.ones_like(size)
        size = SMALLEST_WINDOW + (1 - SMALLEST_WINDOW) * size
        start = place * (1 - size)
        top, left, bottom, right = tf.unstack(tf.concat([start, start + size], 0))
        if self.flips:
            left, right = tf.where(flip, right, left), tf.where(flip, left, right)
        return tf.stack([top, left, bottom, right])


BY_NAME = {
    "none": None,
    "flip": Augmentation(flips=True, crops=False),
    "crop": Augmentation(flips=False, crops=True),
    "flip_crop": Augmentation(flips=True, crops=True),
}
