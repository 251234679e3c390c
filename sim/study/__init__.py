"""Studies: many points, run once each, kept in a file, shown as a table and a picture."""
