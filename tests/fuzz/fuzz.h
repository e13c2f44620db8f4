/* What the fuzz targets of the library have in common: contexts for each backend, and what to do
 * about a finding. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdio.h>

#include "case.h"
#include "fuzz_bytes.h"
#include "fuzz_host.h"

/** A context of one thread, made once, as an engine does: one for whatever is chosen here, or for a
 * backend by itself, where it runs and HEED_BACKEND does not forbid it. */
enum { FUZZ_ANY, FUZZ_NAIVE, FUZZ_AVX2, FUZZ_AVX512, FUZZ_AMX, FUZZ_CONTEXTS };
heed_context *fuzz_context_of(int which); /* or NULL */
heed_context *fuzz_context(fuzz_bytes *bytes);

/** Says what was found, and ends the process. */
void fuzz_finding(const char *what, const char *detail);

/** A failure is a finding; a refusal too, but by a backend that was chosen by its name. */
void fuzz_judge(const kit_outcome *outcome, const heed_context *context);

/** The target itself. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** Each target's: says what the current problem is. */
void fuzz_describe(FILE *out);

#endif
