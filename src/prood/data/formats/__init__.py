"""One small reader for each public format."""
