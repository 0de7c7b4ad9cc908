"""Score a folder of pictures on Spark: spark-submit spark_scores.py photos runs/prood scores-spark"""

import sys
from collections.abc import Iterator

import pandas as pd
from pyspark.sql import SparkSession

from prood import Scorer

SCHEMA = (
    "path string, label long, confidence double, accepted boolean, "
    "`upper_bound_0.01` double, `rejected_0.01` boolean, error string"
)
COLUMNS = ("path", "label", "confidence", "accepted", "upper_bound_0.01", "rejected_0.01", "error")


def main(photos: str, model: str, out: str) -> None:
    spark = SparkSession.builder.appName("prood").getOrCreate()
    scorer = Scorer(model, eps=0.01, columns=COLUMNS)  # sent to the workers, which open the model once

    def scored(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            rows = scorer({"path": batch["path"].tolist(), "bytes": batch["content"].tolist()})
            yield pd.DataFrame(rows)

    images = spark.read.format("binaryFile").option("recursiveFileLookup", True).load(photos)
    images.select("path", "content").mapInPandas(scored, SCHEMA).write.parquet(out)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4])
