/* What the cases of keys and values in codes have in common. */
#ifndef KIT_CASES_CODES_H
#define KIT_CASES_CODES_H

#include "case.h"

enum { KIT_CODES_FIRST = HEED_I8, KIT_CODES_FORMATS = HEED_IQ4_NL - HEED_I8 + 1 };

/** Adds codes/<what>_<k>_<v>/<q>. */
void kit_codes_add(kit_list *list, const char *what, const kit_spec *spec, int quick);

/** Sets the types of k and v, and chooses those of q and out and the scales by n. */
void kit_codes_types(kit_spec *s, uint32_t k, uint32_t v, uint32_t n);

/** Chooses dims by n, all of them whole blocks of every format. */
void kit_codes_dims(kit_spec *s, uint32_t n);

/** Adds hidden codes and scales, and odd numbers (cases_codes_values.c): part of
 * kit_codes_cases. */
void kit_codes_values_cases(kit_list *list);

#endif
