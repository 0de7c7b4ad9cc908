"""Score a folder of pictures in a Ray Data pipeline: python ray_scores.py photos runs/prood scores-ray"""

import sys

import ray

from prood import Scorer

COLUMNS = ("path", "label", "confidence", "accepted", "upper_bound_0.01", "rejected_0.01", "error")


def main(photos: str, model: str, out: str) -> None:
    images = ray.data.read_binary_files(photos, include_paths=True, file_extensions=["png", "jpg"])
    scores = images.map_batches(
        Scorer,  # opened once in each actor
        fn_constructor_args=(model, 0.01),
        fn_constructor_kwargs={"columns": COLUMNS},
        batch_size=256,
        concurrency=1,  # actors; with num_gpus=0.25 four of them share a GPU
    )
    scores.write_parquet(out)


if __name__ == "__main__":
    main(*sys.argv[1:4])
