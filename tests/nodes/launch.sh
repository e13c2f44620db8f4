#!/bin/sh
# Runs a program of MPI with several numbers of ranks, one after another; all of them have to end with 0.
#
# Usage: launch.sh MPIRUN 'RANKS...' PROGRAM [ARGUMENT...]
#
# Where there are fewer CPUs than ranks they take turns: Open MPI has to be told that this is meant, and
# both not to insist on their CPU while they wait. LAUNCH_OPTIONS are further ones of mpirun.
mpirun=$1 ranks=$2
shift 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 # containers have no other user
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none # what containers forbid, with a warning for each rank
export HEED_NUM_THREADS="${HEED_NUM_THREADS:-1}"
bad=0
for n in $ranks; do
    # shellcheck disable=SC2086
    timeout 240 "$mpirun" $LAUNCH_OPTIONS -np "$n" "$@" || { echo "$mpirun -np $n $*: status $?"; bad=1; }
done
exit $bad
