"""Models: by name, from a ``config.json``, from a layer profile; formulas of each family."""
