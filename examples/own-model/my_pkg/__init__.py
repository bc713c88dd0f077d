"""A model and data of one's own: `--model my_pkg.net:build --dataset my_pkg.data:load`."""
