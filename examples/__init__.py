"""Short examples, one file each, to import or to copy."""
