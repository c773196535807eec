"""Short examples, one file each: take what you need, by import or by copying."""
