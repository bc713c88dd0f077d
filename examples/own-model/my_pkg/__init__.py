"""Your own model and data: `--model my_pkg.net:build --dataset my_pkg.data:load`."""
