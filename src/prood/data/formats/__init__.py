"""Readers of the user's own files, and of the pictures that public sets are made of."""
