# The four-machine tutorial's R part: its CNN, on one machine or on every worker of a cluster.
# Adapted from https://www.tensorflow.org/tutorials/distribute/multi_worker_with_keras
#
#   Rscript train.R dataset=mnist epochs=3 steps=5
#
# The tutorial's R packages wrap Python's. Here reticulate calls the same Python without them.
# train.py is this program in Python; both end with the same loss.

library(reticulate)

tf <- import("tensorflow")
tfds <- import("tensorflow_datasets")
keras <- import("tf_keras") # legacy Keras, which the tutorial was written for

settings <- list(
  dataset = "digits", epochs = 3L, steps = 5L, batch = 64L, learning_rate = 0.001, seed = 0L
)
for (given in strsplit(commandArgs(trailingOnly = TRUE), "=")) {
  if (length(given) != 2 || !given[1] %in% names(settings)) {
    stop(paste(given, collapse = "="), ": accepted are ", toString(paste0(names(settings), "=")))
  }
  settings[[given[1]]] <- as(given[2], class(settings[[given[1]]]))
}

# It finds its peers in TF_CONFIG, which the image sets; without one it trains alone.
strategy <- tf$distribute$MultiWorkerMirroredStrategy()
replicas <- strategy$num_replicas_in_sync # one for each worker, or for each GPU of all workers

# The data set digits is in the image; others are looked for, and prepared, in /data.
tfds$core$add_data_dir("/opt/cluster-trainer/data")
tfds$disable_progress_bar()

# The tutorial ends in an error here: `fit` would give each worker files of its own, and a set of
# this size is one file. With DATA each worker takes its share of every batch.
options <- tf$data$Options()
options$experimental_distribute$auto_shard_policy <- tf$data$experimental$AutoShardPolicy$DATA

# tf$divide: only the R package tensorflow has a `/` for tensors. tuple: a list would be one tensor.
scale <- function(image, label) {
  tuple(tf$divide(tf$cast(image, tf$float32), 255), label)
}

train_dataset <- tfds$load(settings$dataset, split = "train", as_supervised = TRUE)$
  map(scale)$
  cache()$
  shuffle(10000L, seed = settings$seed)$
  `repeat`()$
  batch(settings$batch * replicas)$
  with_options(options)

keras$utils$set_random_seed(settings$seed)
with(strategy$scope(), {
  model <- keras$Sequential(list(
    keras$layers$Conv2D(32L, 3L, activation = "relu", input_shape = c(28L, 28L, 1L)),
    keras$layers$MaxPooling2D(),
    keras$layers$Flatten(),
    keras$layers$Dense(64L, activation = "relu"),
    keras$layers$Dense(10L)
  ))
  model$compile(
    loss = keras$losses$SparseCategoricalCrossentropy(from_logits = TRUE),
    optimizer = keras$optimizers$SGD(settings$learning_rate),
    metrics = "accuracy"
  )
})

history <- model$fit(
  train_dataset,
  epochs = settings$epochs, steps_per_epoch = settings$steps, verbose = 2L
)$history

last <- lapply(history, tail, n = 1)
result <- jsonlite::toJSON(c(replicas = replicas, last), auto_unbox = TRUE, digits = NA)
writeLines(paste("result:", result))
