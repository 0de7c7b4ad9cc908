"""A detector over any number of images: sources, shards, Parquet, engines (this machine, Ray)."""

from prood.scoring.job import Request
from prood.scoring.options import Options
from prood.scoring.score import Engine, Scored, score
from prood.scoring.scorer import Scorer

__all__ = ["Engine", "Options", "Request", "Scored", "Scorer", "score"]
