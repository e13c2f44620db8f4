/* The tile instructions on CPUs that have none: code compiled for the tile unit runs, slowly, and
 * every instruction is checked against the manual. For tests. */
#ifndef HEED_AMX_EMULATE_H
#define HEED_AMX_EMULATE_H

#include <heed/backend.h>

/** Takes over SIGILL of the process. Refused where the CPU has the unit itself, or lacks what the
 * kernels need in addition. */
heed_status heed_amx_emulate(const heed_cpu *cpu, const void **machine, heed_error *why);

#endif
