"""Other APIs, held against their pages."""
