/* What the fuzz targets of the library share: a context for each backend, and what happens on a
 * finding. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdio.h>

#include "case.h"
#include "fuzz_bytes.h"
#include "fuzz_host.h"

/** Contexts of one thread, each made once, as an engine would: one for the backend that Heed
 * chooses on this machine, and one for each backend that runs here and that HEED_BACKEND does not
 * rule out. */
enum { FUZZ_ANY, FUZZ_NAIVE, FUZZ_AVX2, FUZZ_AVX512, FUZZ_AMX, FUZZ_CONTEXTS };
heed_context *fuzz_context_of(int which); /* or NULL */
heed_context *fuzz_context(fuzz_bytes *bytes);

/** Prints what was found and ends the process. */
void fuzz_finding(const char *what, const char *detail);

/** A failure is a finding; so is a refusal, unless the context names its backend: a single backend
 * need not support every problem. */
void fuzz_judge(const kit_outcome *outcome, const heed_context *context);

/** The fuzz target itself. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** Each target defines it: prints what the current problem is. */
void fuzz_describe(FILE *out);

#endif
