"""What only a GPU can show, a file for each part; `make gpu-check` runs them all."""
