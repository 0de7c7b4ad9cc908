"""The public image sets of the paper: their sources, terms and facts are in `sets.toml`, their readers here."""
