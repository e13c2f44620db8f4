/* The checks of bits.c, for the lists of their cases. */
#ifndef KIT_BITS_H
#define KIT_BITS_H

#include "case.h"

enum { KIT_BITS_CHECKS = 14 };

typedef struct kit_bits_check {
    const char *name;
    void (*run)(const kit_env *, const kit_case *, kit_outcome *);
} kit_bits_check;

extern const kit_bits_check kit_bits_checks[KIT_BITS_CHECKS];

/** Three sequences of different lengths and offsets. */
void kit_bits_sequences(kit_spec *s, int32_t rows, int32_t keys);

/** Adds the cases of keys and values in codes (bits_codes.c); kit_bits_cases calls it. */
void kit_bits_codes_cases(kit_list *list);

#endif
