"""What counts as the same answer: `kinds` judges, each kind by a file of its own."""
