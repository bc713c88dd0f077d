"""A model and data of your own: `--model my_pkg.net:build --dataset my_pkg.data:load`."""
