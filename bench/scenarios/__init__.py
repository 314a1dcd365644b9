"""What is measured: each module makes the cases of one question."""
