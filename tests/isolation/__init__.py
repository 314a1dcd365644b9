"""Several sessions at once: every lock and every rule of the engine, interleaving by interleaving."""
