"""The public image sets of the paper: one entry each, with its source, terms and known facts."""
