#!/bin/bash
# sbatch array.sh: eight tasks, each with every eighth shard; --requeue starts one again after its node failed.
#SBATCH --job-name=prood-score
#SBATCH --array=0-7
#SBATCH --cpus-per-task=4
#SBATCH --mem=8G
#SBATCH --requeue
set -euo pipefail
export OMP_NUM_THREADS=1
exec prood score photos --model runs/prood --out scores --eps 0.01 \
    --shard "$SLURM_ARRAY_TASK_ID/8" --workers "$SLURM_CPUS_PER_TASK"
