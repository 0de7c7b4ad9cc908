"""Where images come from: files on disk, cut into pieces that can be read one without the others."""

from prood.scoring.sources.listing import Listing
from prood.scoring.sources.pieces import Chunk, Piece, chunks
from prood.scoring.sources.planning import planned, settled

__all__ = ["Chunk", "Listing", "Piece", "chunks", "planned", "settled"]
