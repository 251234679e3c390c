"""Validation: predictions beside what was measured or published elsewhere."""
