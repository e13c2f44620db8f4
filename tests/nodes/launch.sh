#!/bin/sh
# Runs an MPI program with several numbers of ranks, one after another; every run has to end with 0.
#
# Usage: launch.sh MPIRUN 'RANKS...' PROGRAM [ARGUMENT...]
#
# Where there are fewer CPUs than ranks, the ranks take turns: Open MPI has to be told that this is
# intended, and that a rank that waits gives up its CPU. LAUNCH_OPTIONS are further options of
# mpirun.
mpirun=$1 ranks=$2
shift 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # containers may have only root
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none # containers forbid it: a warning for each rank
export HEED_NUM_THREADS="${HEED_NUM_THREADS:-1}"
bad=0
for n in $ranks; do
    # shellcheck disable=SC2086
    timeout 240 "$mpirun" $LAUNCH_OPTIONS -np "$n" "$@" || { echo "$mpirun -np $n $*: status $?"; bad=1; }
done
exit $bad
